"""Made-up secrets in the shape of every family, and harmless texts that look like some: to measure a scanner with.

Drawn by chance from a seed; none was ever valid. The shapes are written down here once more, from the providers' pages,
and share nothing with the patterns that are to find them.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from random import Random
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple

ALNUM, UPPER, HEX = ascii_letters + digits, ascii_uppercase + digits, "0123456789abcdef"
URL64, B64 = ALNUM + "-_", ALNUM + "+/"
BASE32 = ascii_uppercase + "234567"
_WORDS = "harbour kelp ledger tide anchor window record signal copper river stone lantern".split()
Make = Callable[[Random], str]


def drawn(alphabet: str, length: int, before: str = "", after: str = "") -> Make:
    return lambda chance: before + "".join(chance.choices(alphabet, k=length)) + after


def joined(*makes: Make) -> Make:
    return lambda chance: "".join(make(chance) for make in makes)


def _fixed(text: str) -> Make:
    return lambda _: text


def _any(*makes: Make) -> Make:
    return lambda chance: chance.choice(makes)(chance)


def _jwt(chance: Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    head = part({"alg": chance.choice(["HS256", "RS256"]), "typ": "JWT"})
    body = part({"sub": str(chance.randrange(10**9)), "name": chance.choice(_WORDS), "iat": chance.randrange(10**9)})
    return f"{head}.{body}.{drawn(URL64, chance.choice([43, 342]))(chance)}"


def _pem(chance: Random) -> str:
    kind = chance.choice(["RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY"])
    body = drawn(B64, chance.randint(200, 1600))(chance)
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    text = "\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----"))
    return text if chance.random() < 0.6 else text.replace("\n", "\\n")


def _password(chance: Random) -> str:
    word = chance.choice(_WORDS)
    end = drawn(ALNUM, chance.randint(0, 8))(chance)
    return f"{word.title()}{chance.choice('!@#$%^&*')}{chance.randrange(10, 9999)}{end}"


def _slack(chance: Random) -> str:
    number = drawn(digits, 12)
    parts = (chance.choice(["xoxb", "xoxp", "xoxa", "xoxs"]), number(chance), number(chance), drawn(ALNUM, 24)(chance))
    return "-".join(parts)


LOWER = ascii_lowercase + digits
BCRYPT64 = "./" + ALNUM


def _uuid(chance: Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def _base64(make: Make) -> Make:
    return lambda chance: base64.b64encode(make(chance).encode()).decode()


def _after(before: str, make: Make, after: str = "") -> Make:
    return lambda chance: before + make(chance) + after


def _typed_password(chance: Random) -> str:
    """One that a shell takes as it is, and that needs no escape in a file of fields between colons."""
    first, second = chance.sample(_WORDS, 2)
    return chance.choice(
        [
            f"{first.title()}{chance.choice('-._+%@^')}{chance.randrange(10, 9999)}",
            f"{first}{second.title()}{chance.randrange(10, 9999)}",
            drawn(ALNUM, chance.randint(12, 24))(chance),
            f"{first[0].upper()}{drawn(ALNUM, 5)(chance)}{chance.choice('-._+%@^')}{drawn(ALNUM, 6)(chance)}{chance.randrange(10)}",
        ]
    )


def _spoken_password(chance: Random) -> str:
    """One that a person would say: with a digit or a sign, and often weak."""
    words = chance.sample(_WORDS, 3)
    return chance.choice(
        [
            _password(chance),
            f"{words[0]}{chance.randrange(10, 2030)}",
            f"{words[0].title()}{words[1].title()}{chance.randrange(10, 99)}!",
            f"{'-'.join(words)}-{chance.randrange(10, 99)}",
            drawn(ALNUM, 12)(chance) + str(chance.randrange(10)),
        ]
    )


def _password_hash(chance: Random) -> str:
    salt = drawn(BCRYPT64, 16)(chance)
    return chance.choice(
        [
            f"$6${salt}${drawn(BCRYPT64, 86)(chance)}",
            f"$6$rounds=656000${salt}${drawn(BCRYPT64, 86)(chance)}",
            f"$5${salt}${drawn(BCRYPT64, 43)(chance)}",
            f"$y$j9T${drawn(BCRYPT64, 22)(chance)}${drawn(BCRYPT64, 43)(chance)}",
            f"$2{chance.choice('aby')}${chance.choice(['05', '10', '12'])}${drawn(BCRYPT64, 53)(chance)}",
            f"$apr1${drawn(BCRYPT64, 8)(chance)}${drawn(BCRYPT64, 22)(chance)}",
            f"$1${drawn(BCRYPT64, 8)(chance)}${drawn(BCRYPT64, 22)(chance)}",
        ]
    )


def _mapbox(chance: Random) -> str:
    body = json.dumps({"u": chance.choice(_WORDS), "a": "cl" + drawn(LOWER, 23)(chance)}, separators=(",", ":"))
    return f"sk.{base64.urlsafe_b64encode(body.encode()).decode().rstrip('=')}.{drawn(URL64, 22)(chance)}"


def _putty_lines(chance: Random) -> str:
    count = chance.choice([1, 2, 8, 14, 28])
    last = drawn(B64, chance.choice([19, 31, 43]), after="=")(chance)
    return "\n".join([*(drawn(B64, 64)(chance) for _ in range(count - 1)), last])


def _pem_file(chance: Random) -> str:
    kind = chance.choice(["RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY"])
    body = drawn(B64, chance.choice([164, 1592]))(chance)
    lines = (body[at : at + 64] for at in range(0, len(body), 64))
    return "\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""))


FAMILIES: dict[str, Make] = {
    "aws-secret-key": drawn(B64, 40),
    "aws-access-key-id": _any(drawn(UPPER, 16, "AKIA"), drawn(UPPER, 16, "ASIA")),
    "google-api-key": drawn(URL64, 35, "AIza"),
    "google-oauth-token": drawn(URL64, 120, "ya29.a0"),
    "google-client-secret": drawn(URL64, 28, "GOCSPX-"),
    "azure-storage-key": drawn(B64, 86, after="=="),
    "azure-shared-access-key": drawn(B64, 43, after="="),
    "azure-sas": drawn(ALNUM, 43, after="%3D"),
    "azure-client-secret": joined(drawn(ALNUM, 3), drawn(digits, 1), drawn(ALNUM + "_~.-", 33, "Q~", "a")),
    "azure-devops-token": joined(drawn(ALNUM, 76), drawn(ALNUM, 4, "AZDO")),
    "alibaba-key-id": drawn(ALNUM, 20, "LTAI"),
    "digitalocean-token": _any(*(drawn(HEX, 64, f"do{kind}_v1_") for kind in "opr")),
    "heroku-token": drawn(URL64, 60, "HRKU-AA", "a"),
    "fly-token": drawn(B64, 200, "fm2_lJPE", "a"),
    "netlify-token": drawn(ALNUM, 36, "nfp_"),
    "supabase-key": _any(drawn(HEX, 40, "sbp_"), drawn(URL64, 30, "sb_secret_", "a")),
    "planetscale-token": drawn(ALNUM, 43, "pscale_tkn_"),
    "databricks-token": drawn(HEX, 32, "dapi"),
    "tailscale-key": joined(drawn(ALNUM, 12, "tskey-auth-", "CNTRL"), drawn(ALNUM, 32, "-")),
    "vault-token": drawn(URL64, 90, "hvs.CAES", "a"),
    "terraform-token": joined(drawn(ALNUM, 14), drawn(ALNUM, 67, ".atlasv1.")),
    "pulumi-token": drawn(HEX, 40, "pul-"),
    "doppler-token": drawn(ALNUM, 43, "dp.pt."),
    "1password-token": drawn(URL64, 250, "ops_eyJ", "a"),
    "github-token": _any(*(drawn(ALNUM, 36, f"gh{kind}_") for kind in "pousr")),
    "github-fine-grained-token": joined(drawn(ALNUM, 22, "github_pat_"), drawn(ALNUM, 59, "_")),
    "gitlab-token": _any(drawn(URL64, 20, "glpat-"), drawn(URL64, 26, "glrt-t1_"), drawn(URL64, 20, "gldt-")),
    "bitbucket-token": drawn(ALNUM, 32, "ATBB"),
    "atlassian-token": joined(drawn(URL64, 170, "ATATT3xFfGF0"), drawn(UPPER, 8, "=")),
    "npm-token": drawn(ALNUM, 36, "npm_"),
    "pypi-token": drawn(URL64, 150, "pypi-AgEIcHlwaS5vcmc", "a"),
    "rubygems-key": drawn(HEX, 48, "rubygems_"),
    "crates-token": drawn(ALNUM, 32, "cio"),
    "docker-token": drawn(URL64, 27, "dckr_pat_"),
    "buildkite-token": drawn(HEX, 40, "bkua_"),
    "postman-key": joined(drawn(HEX, 24, "PMAK-"), drawn(HEX, 34, "-")),
    "linear-key": drawn(ALNUM, 40, "lin_api_"),
    "figma-token": drawn(URL64, 40, "figd_"),
    "sentry-token": _any(drawn(HEX, 64, "sntryu_"), joined(drawn(ALNUM, 90, "sntrys_eyJ"), drawn(ALNUM, 43, "=_"))),
    "grafana-token": _any(joined(drawn(ALNUM, 32, "glsa_"), drawn(HEX, 8, "_")), drawn(B64, 120, "glc_eyJ", "=")),
    "newrelic-key": drawn(UPPER, 27, "NRAK-"),
    "dynatrace-token": joined(drawn(BASE32, 24, "dt0c01."), drawn(BASE32, 64, ".")),
    "datadog-key": drawn(HEX, 32),
    "anthropic-key": drawn(URL64, 93, "sk-ant-api03-", "AA"),
    "openrouter-key": drawn(HEX, 64, "sk-or-v1-"),
    "openai-key": _any(
        joined(drawn(URL64, 74, "sk-proj-"), drawn(URL64, 74, "T3BlbkFJ")),
        joined(drawn(ALNUM, 20, "sk-"), drawn(ALNUM, 20, "T3BlbkFJ")),
    ),
    "huggingface-token": drawn(ascii_letters, 34, "hf_"),
    "groq-key": drawn(ALNUM, 52, "gsk_"),
    "perplexity-key": drawn(ALNUM, 48, "pplx-"),
    "replicate-token": drawn(ALNUM, 37, "r8_"),
    "xai-key": drawn(ALNUM, 80, "xai-"),
    "slack-token": _any(_slack, joined(drawn(UPPER, 10, "xapp-1-A"), drawn(digits, 13, "-"), drawn(HEX, 64, "-"))),
    "slack-webhook": joined(drawn(UPPER, 9, "T", "/"), drawn(UPPER, 9, "B", "/"), drawn(ALNUM, 24)),
    "stripe-key": _any(drawn(ALNUM, 99, "sk_live_51"), drawn(ALNUM, 24, "rk_test_"), drawn(ALNUM, 32, "whsec_")),
    "square-token": _any(drawn(URL64, 60, "EAAAE"), drawn(URL64, 43, "sq0csp-")),
    "shopify-token": drawn(HEX, 32, "shpat_"),
    "sendgrid-key": joined(drawn(URL64, 22, "SG."), drawn(URL64, 43, ".")),
    "mailgun-key": drawn(HEX, 32, "key-"),
    "mailchimp-key": drawn(HEX, 32, after="-us14"),
    "twilio-key": drawn(HEX, 32, "SK"),
    "telegram-token": joined(drawn("123456789", 10), drawn(URL64, 33, ":AA")),
    "discord-webhook": joined(drawn("123456789", 18, after="/"), drawn(URL64, 68)),
    "discord-token": joined(drawn(ALNUM, 23, "MT", "."), drawn(URL64, 6), drawn(URL64, 38, ".")),
    "notion-token": drawn(ALNUM, 46, "ntn_"),
    "airtable-token": joined(drawn(ALNUM, 14, "pat"), drawn(HEX, 64, ".")),
    "age-key": drawn(UPPER, 58, "AGE-SECRET-KEY-1"),
    "private-key": _pem,
    "jwt": _jwt,
    "url-password": _password,
    "auth-header": drawn(ALNUM + "-._~", 40, "a", "b"),
    "password": _password,
    "generic": drawn(ALNUM, 32),
    "langfuse-key": _after("sk-lf-", _uuid),
    "deepseek-key": drawn(HEX, 32, "sk-"),
    "nvidia-key": drawn(URL64, 63, "nvapi-", "a"),
    "pinecone-key": _any(
        joined(drawn(ALNUM, 5, "pcsk_", "_"), drawn(ALNUM, 63)), joined(drawn(ALNUM, 6, "pcsk_", "_"), drawn(ALNUM, 63))
    ),
    "langsmith-key": _any(*(joined(drawn(HEX, 32, f"lsv2_{kind}_"), drawn(HEX, 10, "_")) for kind in ("pt", "sk"))),
    "tavily-key": _any(*(drawn(ALNUM, 32, before) for before in ("tvly-", "tvly-dev-", "tvly-prod-"))),
    "fireworks-key": _any(drawn(ALNUM, 22, "fw_"), drawn(ALNUM, 24, "fw_")),
    "jina-key": joined(drawn(HEX, 32, "jina_"), drawn(URL64, 27, after="a")),
    "cerebras-key": drawn(LOWER, 48, "csk-"),
    "together-key": drawn(URL64, 42, "tgp_v1_", "a"),
    "voyage-key": drawn(URL64, 42, "pa-", "a"),
    "elevenlabs-key": drawn(HEX, 48, "sk_"),
    "firecrawl-key": drawn(HEX, 32, "fc-"),
    "runpod-key": joined(drawn(UPPER, 40, "rpa_"), drawn(LOWER, 6)),
    "e2b-key": drawn(HEX, 40, "e2b_"),
    "brave-key": drawn(URL64, 27, "BSA", "a"),
    "zhipu-key": joined(drawn(HEX, 32), drawn(ALNUM, 16, ".")),
    "modal-secret": drawn(ALNUM, 22, "as-"),
    "wandb-key": _any(drawn(HEX, 40), joined(drawn(ALNUM, 27, "wandb_v1_"), drawn(ALNUM, 49, "_"))),
    "sonarqube-token": _any(*(drawn(HEX, 40, f"sq{kind}_") for kind in "pua")),
    "circleci-token": _any(*(joined(drawn(ALNUM, 22, f"CCI{kind}_"), drawn(HEX, 40, "_")) for kind in ("PAT", "PRJ"))),
    "render-key": _any(drawn(ALNUM, 28, "rnd_"), drawn(ALNUM, 32, "rnd_")),
    "neon-key": drawn(LOWER, 64, "napi_"),
    "vercel-token": _any(*(drawn(ALNUM, 56, f"vc{kind}_") for kind in "pkiar")),
    "jfrog-token": _any(drawn(ALNUM, 50, "cmVmdGtuOjAxOj"), drawn(ALNUM, 69, "AKCp")),
    "nuget-key": drawn(ascii_lowercase + "234567", 43, "oy2"),
    "launchdarkly-key": _any(_after("api-", _uuid), _after("sdk-", _uuid)),
    "sourcegraph-token": _any(
        drawn(HEX, 40, "sgp_"), joined(drawn(HEX, 16, "sgp_"), drawn(HEX, 40, "_")), drawn(HEX, 40, "sgp_local_")
    ),
    "posthog-key": _any(drawn(ALNUM, 43, "phx_"), drawn(ALNUM, 47, "phx_")),
    "cockroach-key": joined(drawn(ALNUM, 22, "CCDB1_"), drawn(ALNUM, 40, "_")),
    "prefect-key": _any(drawn(ALNUM, 36, "pnu_"), drawn(ALNUM, 36, "pnb_")),
    "readme-key": drawn(LOWER, 63, "rdme_xn8s9h"),
    "typeform-token": joined(drawn(ALNUM, 44, "tfp_"), drawn(ALNUM, 14, "_")),
    "contentful-token": drawn(URL64, 42, "CFPAT-", "a"),
    "clickup-token": _any(
        joined(drawn("123456789", 7, "pk_"), drawn(UPPER, 32, "_")), joined(drawn("123456789", 8, "pk_"), drawn(UPPER, 32, "_"))
    ),
    "hubspot-token": _any(*(_after(f"pat-{region}-", _uuid) for region in ("na1", "eu1", "na2"))),
    "plaid-token": _any(*(_after(f"access-{stage}-", _uuid) for stage in ("sandbox", "development", "production"))),
    "brevo-key": _any(*(joined(drawn(HEX, 64, f"{kind}-"), drawn(ALNUM, 16, "-")) for kind in ("xkeysib", "xsmtpsib"))),
    "resend-key": joined(drawn(ALNUM, 8, "re_"), drawn(ALNUM, 24, "_")),
    "easypost-key": _any(drawn(ALNUM, 54, "EZAK"), drawn(ALNUM, 54, "EZTK")),
    "shippo-token": _any(drawn(HEX, 40, "shippo_live_"), drawn(HEX, 40, "shippo_test_")),
    "duffel-token": _any(drawn(URL64, 42, "duffel_live_", "a"), drawn(URL64, 42, "duffel_test_", "a")),
    "flutterwave-key": _any(
        drawn(HEX, 32, "FLWSECK-", "-X"), drawn(HEX, 32, "FLWSECK_TEST-", "-X"),
        joined(drawn(HEX, 32, "FLWSECK-"), drawn(HEX, 11, "-", "vt-X")),
    ),
    "braintree-token": _any(
        *(joined(drawn(LOWER, 16, f"access_token${stage}$"), drawn(HEX, 32, "$")) for stage in ("production", "sandbox"))
    ),
    "dropbox-token": _any(drawn(URL64, 136, "sl.B", "a"), drawn(URL64, 900, "sl.u.AF", "a")),
    "facebook-token": _any(*(drawn(ALNUM, length, f"EAA{kind}") for kind in "GMCBJ" for length in (120, 185))),
    "mapbox-token": _mapbox,
    "maxmind-key": joined(drawn(ALNUM, 6), drawn(ALNUM, 29, "_", "_mmk")),
    "npmrc": _any(_uuid, drawn(ALNUM, 40), drawn(HEX, 64), _base64(_after("ci-bot:", drawn(ALNUM, 24)))),
    "docker-auth": _base64(joined(_any(*map(_fixed, ("deploy:", "robot$ci:", "AWS:", "me@corp.net:"))), _typed_password)),
    "netrc": _any(_typed_password, _password, drawn(HEX, 40), _uuid),
    "pgpass": _any(_typed_password, drawn(ALNUM, 20)),
    "password-hash": _password_hash,
    "command-password": _typed_password,
    "spoken-password": _spoken_password,
    "kube-key": _base64(_pem_file),
    "wireguard-key": drawn(B64, 42, after="0="),
    "putty-key": _putty_lines,
    "cloudflare-origin-key": joined(drawn(HEX, 24, "v1.0-"), drawn(HEX, 146, "-")),
}  # fmt: skip
"""Families for which a scanner may have no rules yet; `sample` knows them like the others."""

_PLACES = (
    "{}", "export KEY_1={}", 'value: "{}"', "the one to use is {} as they said", '{{"k": "{}", "n": 1}}', "- `{}`",
    "run --with {} --verbose", "'{}',", "({})", "<td>{}</td>", "KEY_1={}\nKEY_2=other", "x='{}'; y=2", "see {}.",
)  # fmt: skip
_OWN: dict[str, tuple[str, ...]] = {
    "aws-secret-key": (
        "AWS_SECRET_ACCESS_KEY={}", 'aws_secret_access_key = "{}"', '"SecretAccessKey": "{}"', "secretAccessKey: '{}'",
    ),
    "azure-storage-key": (
        "DefaultEndpointsProtocol=https;AccountName=stk1;AccountKey={};EndpointSuffix=core.windows.net",
        '"AzureWebJobsStorage": "AccountName=a;AccountKey={}"',
    ),
    "azure-shared-access-key": (
        "Endpoint=sb://bus1.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={}",
        'conn: "HostName=hub1.azure-devices.net;SharedAccessKeyName=own;SharedAccessKey={}"',
    ),
    "azure-sas": ("https://stk1.blob.core.windows.net/c/f.txt?sv=2024-05-04&sr=b&sp=r&sig={}", "url=b?se=2027&sig={}&sr=c"),
    "datadog-key": ("DD_API_KEY={}", 'datadog_app_key: "{}"', '"dd-api-key": "{}"'),
    "slack-webhook": ("curl -X POST https://hooks.slack.com/services/{}", 'url: "https://hooks.slack.com/services/{}"'),
    "discord-webhook": ("https://discord.com/api/webhooks/{}", "HOOK=https://discordapp.com/api/webhooks/{}\n"),
    "url-password": (
        "postgres://app:{}@db.internal:5432/main", "DATABASE_URL=mysql+pymysql://root2:{}@10.0.0.7/x", "redis://:{}@cache:6379/0",
        "mongodb+srv://svc:{}@c0.abcde.mongodb.net/?retryWrites=true", "git clone https://me:{}@git.corp.net/a/b.git",
    ),
    "auth-header": (
        "Authorization: Bearer {}", 'curl -H "Authorization: Bearer {}" https://api.corp.net', '"authorization": "Basic {}"',
        "headers={{'Authorization': 'Bearer {}'}}", "Authorization: token {}",
    ),
    "password": (
        'password = "{}"', "DB_PASSWORD={}", "password: {}", '"passwd": "{}",', "PGPASSWORD='{}' psql -h db", "pwd={};Encrypt=yes",
        "--password={}", "the password: {}", "redis_password := `{}`",
    ),
    "generic": (
        'SECRET_KEY = "{}"', "api_key: {}", "export MY_TOKEN={}", '"clientSecret": "{}"', "auth-key={}", "access_key => '{}'",
        '"signing_key":"{}"', "client_secret={}&grant_type=x", "credential: {}", "--api-key={}", "API_KEY='{}'",
    ),
    "wandb-key": (
        "WANDB_API_KEY={}", "wandb login {}", 'wandb.login(key="{}")', "export WANDB_API_KEY='{}'", 'os.environ["WANDB_API_KEY"] = "{}"',
        "wandb_api_key: {}", "machine api.wandb.ai\n  login user\n  password {}",
    ),
    "zhipu-key": ("ZHIPUAI_API_KEY={}", 'client = ZhipuAI(api_key="{}")', "ZAI_API_KEY='{}'", '"zhipu_key": "{}"', "glm key {} works"),
    "modal-secret": ("token_secret = \"{}\"", "modal token set --token-id ak-1 --token-secret {}", "MODAL_TOKEN_SECRET={}", '"{}"'),
    "npmrc": (
        "//registry.npmjs.org/:_authToken={}", "@corp:registry=https://npm.corp.net/\n//npm.corp.net/:_authToken={}",
        '//gitlab.corp.net/api/v4/packages/npm/:_authToken="{}"', "npm config set //registry.npmjs.org/:_authToken {}",
        "echo '//registry.npmjs.org/:_authToken={}' > ~/.npmrc", "always-auth=true\n_authToken = {}", 'npmAuthToken: "{}"',
        "//pkgs.corp.net/npm/registry/:_auth={}", "//npm.corp.net/:username=ci\n//npm.corp.net/:_password={}",
    ),
    "docker-auth": (
        '"auths": {{"https://index.docker.io/v1/": {{"auth": "{}"}}}}', '{{\n  "auths": {{\n    "ghcr.io": {{\n      "auth": "{}"\n    }}\n  }}\n}}',
        '"registry.corp.net:5000":{{"auth":"{}"}}', '"auth": "{}",', "{{\\\"auths\\\":{{\\\"quay.io\\\":{{\\\"auth\\\":\\\"{}\\\"}}}}}}",
    ),
    "netrc": (
        "machine api.heroku.com login me@corp.net password {}", "machine github.com\n  login me\n  password {}",
        "machine artifacts.corp.net\n\tlogin ci-bot\n\tpassword {}\n\nmachine other.net", "default login guest password {}",
        "echo 'machine git.corp.net login ci password {}' >> ~/.netrc", "machine db1 login app account main password {}",
    ),
    "pgpass": (
        "db.internal:5432:main:app:{}", "*:*:*:postgres:{}", "localhost:5432:*:me:{}", "10.0.0.7:5433:shop:shop_rw:{}",
        "# hostname:port:database:username:password\npg-1.corp.net:6432:ledger:ledger_ro:{}", "/var/run/postgresql:5432:*:backup:{}",
        "echo 'db:5432:main:app:{}' > ~/.pgpass", "[::1]:5432:main:app:{}\n*:5432:other:app:",
    ),
    "password-hash": (
        "root:{}:19742:0:99999:7:::", "daemon:*:19000:0:99999:7:::\nalice:{}:19910:0:99999:7:::\nsshd:!:19000::::::", "admin:{}",
        "deploy:{}\nreader2:other", "usermod -p '{}' alice", 'hashed_passwd: "{}"', "rootpw --iscrypted {}", "ec2-user:{}:20001::::::",
        "INSERT INTO users (name, password_hash) VALUES ('bo', '{}');", '"passwordHash": "{}"', "basic_auth_users:\n  admin: {}",
    ),
    "command-password": (
        "sshpass -p '{}' ssh root@10.0.0.7", "sshpass -p {} scp f.txt me@host:", 'sshpass -p "{}" rsync -a . box:/srv', "mysql -u root -p{} main",
        "mysql -h db -uapp -p'{}' -e 'select 1'", "mysqldump -u backup -p{} --all-databases > all.sql", "mysqladmin -uroot -p\"{}\" status",
        "curl -u admin:{} https://api.corp.net/v1", "curl -s --user 'deploy:{}' https://nexus.corp.net/x", 'curl -X POST -u "ci:{}" http://jenkins:8080/job',
        "curl -fsSL -uci:{} https://repo.corp.net/a.tgz", "redis-cli -h cache -a {} ping", "redis-cli -p 6380 -a '{}' INFO",
        "ldapsearch -x -H ldap://dc1 -D cn=admin,dc=corp,dc=net -w {} -b dc=corp,dc=net", "ldapsearch -D 'CORP\\svc' -w '{}' '(uid=bo)'",
        "docker login -u robot -p {} registry.corp.net", 'docker login registry.corp.net --username ci --password "{}"', "podman login -u me -p '{}' quay.io",
        "echo {} | docker login -u ci --password-stdin", "sqlcmd -S db1 -U sa -P '{}' -Q 'select 1'", "mongosh mongodb://db -u admin -p {}",
        "wget --user=me --password={} https://files.corp.net/a.zip", "helm registry login -u ci -p {} ghcr.io", "echo '{}' | sudo -S apt-get update",
        "smbclient //nas/share -U 'me%{}'", "openssl rsa -in k.pem -passin pass:{} -out o.pem", "htpasswd -b .htpasswd admin {}",
    ),
    "spoken-password": (
        "my password is {}", "My password is {}, can you log in and look?", "The password for the staging box is {}.", "the root password is `{}`",
        "ok so the wifi password is {} and the router is at 192.168.1.1", "user is admin, password is {}", "log in as deploy with the password {}",
        "use {} as the password", 'the admin password was changed to "{}" yesterday', "here's the db password: {}", "my new password is: {}",
        "the passphrase of the key is {}", "it asks for a password, type {}", "username: bo, pw: {}", "my pass is {} btw", "I set the password to {}",
        "das Passwort ist {}", "mein Passwort lautet {}", "le mot de passe est {}", "la contraseña es {}",
    ),
    "kube-key": (
        "users:\n- name: admin\n  user:\n    client-certificate-data: LS0tLS1C\n    client-key-data: {}", "    client-key-data: {}\n", 'client-key-data: "{}"',
        '"client-key-data": "{}"', '{{"user":{{"client-key-data":"{}"}}}}', "kubectl config set users.admin.client-key-data {}",
    ),
    "wireguard-key": (
        "[Interface]\nPrivateKey = {}\nAddress = 10.8.0.2/24", "PrivateKey={}", "[Peer]\nPublicKey = other\nPresharedKey = {}", "privateKey = \"{}\";",
        "PrivateKey = {}\nListenPort = 51820", "wg_private_key: {}", "echo '{}' > /etc/wireguard/private.key", "WIREGUARD_PRIVATE_KEY={}",
    ),
    "putty-key": (
        "PuTTY-User-Key-File-3: ssh-rsa\nEncryption: none\nComment: me\nPublic-Lines: 1\nAAAAB3NzaC1yc2E=\nPrivate-Lines: {lines}\n{}\nPrivate-MAC: 00",
        "PuTTY-User-Key-File-2: ssh-ed25519\nEncryption: none\nComment: ed\nPublic-Lines: 1\nAAAAC3NzaC1lZDI1=\nPrivate-Lines: {lines}\n{}\nPrivate-MAC: 11",
        "Private-Lines: {lines}\n{}\nPrivate-MAC: 22", "Private-Lines: {lines}\r\n{}\r\nPrivate-MAC: 33",
    ),
}  # fmt: skip


def sample(family: str, chance: Random) -> tuple[str, str]:
    """A text with one secret of the family in it, and the secret."""
    value = FAMILIES[family](chance)
    place = chance.choice(_OWN.get(family, _PLACES))
    before, after = (" ".join(chance.choices(_WORDS, k=chance.randint(0, 12))) for _ in range(2))
    return f"{before}\n{place.format(value, lines=value.count(chr(10)) + 1)}\n{after}", value


MARKED = (
    "github-token", "github-fine-grained-token", "gitlab-token", "npm-token", "pypi-token", "docker-token", "anthropic-key", "openai-key",
    "openrouter-key", "groq-key", "perplexity-key", "google-api-key", "google-client-secret", "digitalocean-token", "fly-token", "vault-token",
    "doppler-token", "planetscale-token", "tailscale-key", "slack-token", "stripe-key", "shopify-token", "grafana-token", "linear-key", "age-key",
    "langfuse-key", "langsmith-key", "tavily-key", "nvidia-key", "pinecone-key", "jina-key", "together-key", "sonarqube-token", "circleci-token",
    "neon-key", "sourcegraph-token", "cockroach-key", "contentful-token", "brevo-key", "shippo-token", "duffel-token", "flutterwave-key",
)  # fmt: skip
"""Families whose tokens begin with a mark of their own, so that one is known though something stands inside of it."""


class Obfuscated(NamedTuple):
    """A secret that doesn't stand in its text as it is.

    Attributes:
        text: The whole text.
        value: The secret itself, as its provider gave it out.
        form: What stands in the text for it, exactly once, from the secret's first character to its last.
        way: Which of `WAYS` it is.
    """

    text: str
    value: str
    form: str
    way: str


def _cut(value: str, between: Make, chance: Random, most: int = 1) -> str:
    """The value with something at one place, or at several up to `most`; at least eight characters stay together behind."""
    places = sorted(chance.sample(range(4, len(value) - 8), chance.randint(1, most)), reverse=True)
    for at in places:
        value = value[:at] + between(chance) + value[at:]
    return value


def _wrapped(value: str, between: str, chance: Random) -> str:
    """At the width of a screen or a mail where the value is long, else at one place."""
    width = chance.choice([40, 48, 64, 76])
    if len(value) % width < 8 or len(value) < width or chance.random() < 0.4:
        return _cut(value, _fixed(between), chance)
    return between.join(value[at : at + width] for at in range(0, len(value), width))


def _newline(value: str, chance: Random) -> tuple[str, str]:
    return _wrapped(value, "\n", chance), chance.choice(["the key:\n{}\nthat is all", "KEY={}\nOTHER=1", "{}"])


def _indented(value: str, chance: Random) -> tuple[str, str]:
    before = chance.choice(["  ", "    ", "\t", "> ", "| ", "    | ", ">> ", "# ", "// "])
    return _wrapped(value, "\n" + before, chance), f"\n{before}as you said:\n{before}{{}}\n{before}is the one"


def _continued(value: str, chance: Random) -> tuple[str, str]:
    return _wrapped(value, "\\\n", chance), chance.choice(
        ["export KEY={}\nmake", "curl -H 'x-api-key: {}' https://a.net", 'KEY="{}"\n']
    )


def _concatenated(value: str, chance: Random) -> tuple[str, str]:
    quote = chance.choice("'\"")
    between = chance.choice(["\n    ", " +\n    ", "\n  + ", " \\\n    ", " .\n  ", " ..\n  ", " &\n  "])
    place = chance.choice(["key = (\n    Q{}Q\n)", "const key = Q{}Q;", "call(Q{}Q, 1)"]).replace("Q", quote)
    return _wrapped(value, quote + between + quote, chance), place


def _coloured(value: str, chance: Random) -> tuple[str, str]:
    place = chance.choice(["KEY={}", "\x1b[32m+KEY={}\x1b[m", "\x1b[2m12:\x1b[0m {}"])
    if chance.random() < 0.4:
        end = chance.randint(3, 8)
        return f"{value[:end]}\x1b[m\x1b[K{value[end:]}", f"f.env:\x1b[01;31m\x1b[K{place}"
    codes = [
        "\x1b[31m",
        "\x1b[0m",
        "\x1b[1;32m",
        "\x1b[38;5;208m",
        "\x1b[48;2;1;2;3m",
        "\x1b[m",
        "\x1b[K",
        "\x1b[0m\x1b[33m",
    ]
    return _cut(value, lambda c: c.choice(codes), chance, 3), place


def _invisible(value: str, chance: Random) -> tuple[str, str]:
    between = chance.choice("\u200b\u00ad\ufeff\u2060")
    return _cut(value, _fixed(between), chance, 4), chance.choice(["the key is {} here", "{}", "- `{}`"])


def _json_escaped(value: str, chance: Random) -> tuple[str, str]:
    form = "".join(
        "\\/" if one == "/" else f"\\u{ord(one):04{chance.choice('xX')}}" if one in "-_.+=" else one for one in value
    )
    if chance.random() < 0.3:
        at = chance.randrange(4, len(value) - 8)
        form = value[:at] + f"\\u{ord(value[at]):04x}" + value[at + 1 :]
    return form, chance.choice(['{{"key":"{}","n":1}}', '{{"text": "the key {} of bo"}}', '["{}"]'])


def _url_escaped(value: str, chance: Random) -> tuple[str, str]:
    style = chance.choice("xX")
    form = "".join(one if one in ALNUM else f"%{ord(one):02{style}}" for one in value)
    return form, chance.choice(
        ["https://a.net/x?k={}&n=1", "GET /v1/{}/me HTTP/1.1", "body: key={}&grant=x", "next=%2Fhome%3Fkey%3D{}%26a"]
    )


def _escaped_newline(value: str, chance: Random) -> tuple[str, str]:
    between = chance.choice(["\\n", "\\r\\n", "\\n  ", "\\n> ", "\\\\n"])
    return _wrapped(value, between, chance), chance.choice(['{{"text":"key:\\n{}\\nend"}}', '{{"out": "{}", "n": 1}}'])


def _glued(value: str, chance: Random) -> tuple[str, str]:
    word = chance.choice(["x", "K", "key", "is", "token", "n", "was", "The"])
    return value, chance.choice([f"the key {word}{{}} of bo", f"the key {{}}{word} of bo", f"{word}{{}}"])


WAYS: dict[str, Callable[[str, Random], tuple[str, str]]] = {
    "newline": _newline,
    "indented": _indented,
    "continued": _continued,
    "concatenated": _concatenated,
    "coloured": _coloured,
    "invisible": _invisible,
    "json": _json_escaped,
    "url": _url_escaped,
    "escaped newline": _escaped_newline,
    "glued": _glued,
}
"""How a secret can stand in a text and yet not as it is; each gives its form and the place around it."""


def obfuscated(family: str, chance: Random, way: str | None = None) -> Obfuscated:
    """A text in which a secret is cut, coloured, escaped or glued to a word.

    A scanner has found it if what it covers holds the whole `form`: `text.index(form)` is where that begins. (Of a
    secret that is glued, `form` is `value`; the word beside it may be covered too.) After redacting, neither `form` nor
    either half of `value` may be left.

    Args:
        family: One of `MARKED`.
        chance: Where all is drawn from.
        way: One of `WAYS`; drawn, where none is given, from those that change something.

    Returns:
        The text, the secret, what stands for it, and the way.
    """
    value = FAMILIES[family](chance)
    ways = [way] if way else [one for one in WAYS if one not in ("json", "url") or not value.isalnum()]
    way = chance.choice(ways)
    form, place = WAYS[way](value, chance)
    before, after = (" ".join(chance.choices(_WORDS, k=chance.randint(0, 6))) for _ in range(2))
    return Obfuscated(f"{before}\n{place.format(form)}\n{after}", value, form, way)


def _word(chance: Random) -> str:
    return chance.choice(_WORDS)


def _line(before: str, *texts: str) -> Make:
    return lambda chance: f"{before}{chance.choice(texts)} {_word(chance)} {chance.randrange(99)}"


HARMLESS: tuple[Make, ...] = (
    lambda c: f"commit {drawn(HEX, 40)(c)}",
    lambda c: f'"integrity": "sha512-{drawn(B64, 86)(c)}=="',
    lambda c: f"token_id: {uuid.UUID(int=c.getrandbits(128))}",
    lambda c: f"password = {c.choice(['getpass.getpass()', 'os.environ[PW]', 'config.password', 'None', '********'])}",
    lambda c: f"secret: ${{{{ secrets.{c.choice(_WORDS).upper()}_TOKEN }}}}",
    lambda c: f"max_tokens={c.randrange(10**6)}, token_count: {c.randrange(10**9)}",
    lambda c: f"data:image/png;base64,{drawn(B64, 400)(c)}",
    lambda c: f"https://user:password@{c.choice(_WORDS)}.example.com/x",
    lambda c: f"api_key=your_api_key_{c.choice(_WORDS)}_here_{c.randrange(99)}",
    lambda c: f"def make_{c.choice(_WORDS)}_token(self, api_key: str = DEFAULT_API_KEY_2) -> str:",
    lambda c: f"digest sha256:{drawn(HEX, 64)(c)}",
    lambda c: f"access_key: arn:aws:iam::{drawn(digits, 12)(c)}:role/{c.choice(_WORDS)}",
    lambda c: (
        f"tokenizer = AutoTokenizer.from_pretrained('{c.choice(_WORDS)}/{c.choice(_WORDS)}-7b-v0.{c.randrange(9)}')"
    ),
    lambda c: f"Authorization: Bearer $TOKEN_{c.choice(_WORDS).upper()}",
    lambda c: f"/var/lib/{c.choice(_WORDS)}/{drawn(HEX, 12)(c)}/secret_{c.choice(_WORDS)}.txt",
    lambda c: f"token = parse_{c.choice(_WORDS)}_token2(source)[{c.randrange(9)}]",
    lambda c: f"the password reset of {c.choice(_WORDS)} is in step {c.randrange(99)}: ask for it",
    lambda c: f"* {drawn(HEX, 7)(c)} (origin/{_word(c)}) {_word(c)} the {_word(c)}",
    lambda c: f"index {drawn(HEX, 10)(c)}..{drawn(HEX, 10)(c)} 100644\n--- a/{_word(c)}.py\n+++ b/{_word(c)}.py",
    lambda c: f'{_word(c)} = {{ git = "https://github.com/x/{_word(c)}", rev = "{drawn(HEX, 40)(c)}" }}',
    lambda c: f'    {{file = "{_word(c)}-1.{c.randrange(9)}.tar.gz", hash = "sha256:{drawn(HEX, 64)(c)}"}},',
    lambda c: f"{_word(c)}==2.{c.randrange(40)} --hash=sha256:{drawn(HEX, 64)(c)}",
    lambda c: f"github.com/{_word(c)}/{_word(c)} v1.{c.randrange(9)}.0 h1:{drawn(B64, 43)(c)}=",
    lambda c: f"-rw-r--r-- 1 {_word(c)}:{_word(c)} {c.randrange(9**6)} Nov 2{c.randrange(9)} 08:4{c.randrange(9)} {_word(c)}-{c.randrange(99)}.log",
    lambda c: f"chown -R {_word(c)}:{_word(c)} /srv/{_word(c)}/{drawn(HEX, 8)(c)}",
    lambda c: f"{_word(c)}:x:{c.randrange(9**4)}:{c.randrange(9**4)}:{_word(c)} {_word(c)}:/home/{_word(c)}:/bin/bash",
    lambda c: f"{_word(c)}:{c.choice(['*', '!', '!!', '!*'])}:19{c.randrange(100, 999)}:0:99999:7:::",
    lambda c: f"{drawn(HEX, 12)(c)}   {_word(c)}:1.2{c.randrange(9)}   \"docker-entry.s…\"   Up 3 days   0.0.0.0:80{c.randrange(10, 99)}->5432/tcp   {_word(c)}-db-1",
    lambda c: f"tcp LISTEN 0 244 127.0.0.1:5432 0.0.0.0:* users:((\"postgres\",pid={c.randrange(9**5)},fd={c.randrange(99)}))",
    lambda c: f"{_word(c)}:5432:{_word(c)}:{_word(c)} is where it listens",
    lambda c: f"src/{_word(c)}/{_word(c)}.py:{c.randrange(900)}:{c.randrange(80)}:error:{_word(c)}-arg-type{c.randrange(9)}",
    lambda c: f"{_word(c)}.ts:{c.randrange(900)}:{c.randrange(80)}:warning:no-unused-vars",
    lambda c: f"- /srv/{_word(c)}:/data/{_word(c)}:ro",
    lambda c: f"link/ether {':'.join(drawn(HEX, 2)(c) for _ in range(6))} inet6 fe80::{':'.join(drawn(HEX, 4)(c) for _ in range(4))}/64",
    lambda c: f"2026-11-{c.randrange(10, 28)}T0{c.randrange(9)}:4{c.randrange(9)}:11.{drawn(digits, 6)(c)}+00:00 {_word(c)}: {_word(c)}",
    lambda c: f"0000{drawn(HEX, 4)(c)}: {' '.join(drawn(HEX, 4)(c) for _ in range(8))}  ................",
    lambda c: f"{drawn(HEX, 8)(c)}  {' '.join(drawn(HEX, 2)(c) for _ in range(8))}  |{_word(c)}..|",
    lambda c: f".{_word(c)}-{_word(c)}{{background:#{drawn(HEX, 6)(c)};color:#{drawn(HEX, 3)(c)};margin:0 {c.randrange(9)}px}}",
    lambda c: f"!function(e,t){{var n=e.{_word(c)},r=t[{c.randrange(99)}];return n&&r.{_word(c)}Token?r:n}}(window,[0,1]);",
    lambda c: f'<link rel="stylesheet" href="/assets/{_word(c)}-{drawn(ALNUM, 8)(c)}.css" integrity="sha384-{drawn(B64, 64)(c)}">',
    lambda c: f"//# sourceMappingURL=data:application/json;base64,{drawn(B64, 300)(c)}",
    lambda c: f"src: url(data:font/woff2;base64,{drawn(B64, 500)(c)}) format('woff2')",
    lambda c: f"sk_{_word(c)}_{_word(c)} = sk_test_helper(sk_{_word(c)}, pk_{_word(c)}_id)",
    lambda c: f"for rpa_{_word(c)} in re_{_word(c)}_{_word(c)}: fw_{_word(c)}.append(rnd_{_word(c)})",
    lambda c: f"from sklearn.{_word(c)} import sk_{_word(c)}_pipeline_{c.randrange(9)}",
    _line("OPENAI_API_KEY=", "sk-...", "sk-xxxxxxxxxxxxxxxxxxxxxxxx", "sk-your-key-here", "<your key>", "sk-proj-…", "changeme"),
    _line("BOT_TOKEN=", "ghp_...", "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "your-api-key", "glpat-XXXXXXXXXXXXXXXXXXXX", "xoxb-your-token"),
    _line("client = Client(api_key=", *(f'"{one}")' for one in ("YOUR_API_KEY", "your-api-key", "test", "dummy", "tvly-YOUR_API_KEY", "nvapi-..."))),
    _line("keys that begin with ", *(f"`{one}` are for" for one in ("pk_live_", "sk_live_", "sk-ant-", "AKIA", "hvs.", "lsv2_pt_"))),
    _line("assert redact(", *(f"'{one}' + 'a' * 36) == MASK" for one in ("ghp_", "sk-ant-", "xoxb-"))),
    _line("re.compile(", *(f"r'\\b{one}\\b')" for one in ("ghp_[A-Za-z0-9]{36}", "AKIA[0-9A-Z]{16}", "sk-[a-z0-9]{32}", "npm_[A-Za-z0-9]{36}"))),
    lambda c: f"test_that_the_{_word(c)}_of_a_{_word(c)}_is_kept_when_the_{_word(c)}_token_is_refreshed_{c.randrange(9)}",
    lambda c: f"com.corp.{_word(c)}.security.{_word(c).title()}PasswordAuthenticationTokenProviderFactory{c.randrange(9)}",
    lambda c: f"@{_word(c)}/eslint-plugin-{_word(c)}-{_word(c)}-secret-rules@{c.randrange(9)}.{c.randrange(99)}.1",
    lambda c: f"pip install {_word(c)}-sk-learn-{_word(c)} pa-{_word(c)}-{_word(c)} fc-{_word(c)} csk-{_word(c)}",
    lambda c: f"The {_word(c)} of the\n> {_word(c)} and its {_word(c)}-\n> {_word(c)} token is in the {_word(c)}",
    lambda c: f"\x1b[32m✓\x1b[0m {_word(c)} \x1b[2m({c.randrange(999)} ms)\x1b[22m \x1b[1;33m{_word(c)}_{_word(c)}_token\x1b[0m {drawn(HEX, 7)(c)}",
    lambda c: f"GET /api/{_word(c)}%2F{_word(c)}%2Dtoken%5F{c.randrange(99)}?redirect=https%3A%2F%2F{_word(c)}.net%2Fa%20b HTTP/1.1",
    lambda c: f'{{"path":"C:\\\\{_word(c)}\\\\{_word(c)}","text":"a\\u002db \\u00e9\\n{_word(c)}\\/{_word(c)}\\n","token_type":"bearer"}}',
    lambda c: f"*/{c.randrange(2, 30)} {c.randrange(24)} * * 1-5 /usr/bin/{_word(c)} --{_word(c)}-key-file /etc/{_word(c)}.key >/dev/null 2>&1",
    _line(
        "", "the password is required", "my password is wrong", "The password is incorrect.", "your password is too short", "das Passwort ist falsch",
        "my password is expired and I need a new one", "the password is case-sensitive", "the password is stored hashed", "my password is not working",
    ),
    _line("", "Enter password: \n", "Password for me: \n", "password: required,", "password (again): \n"),
    _line("use ", *(f"{one} password for it, and set the password to something long:" for one in ("a", "the same", "your", "another"))),
    _line("curl ", '-u "$USER:$PASS" https://a.net/x', "-u ${USER}:${PASS} a.net", '--user "$CREDS" a.net', "-u me https://a.net", "-u : --negotiate a.net"),
    _line("mysql ", "-u root -p", "-u root -p main", '-p"$DB_PASS" main', "-p $DB <", "-u root -p < dump.sql &&", "-uroot -p -e 'select 1' &&"),
    _line(
        "", "sshpass -e ssh box", 'sshpass -p "$PW" ssh box', "sshpass -f pw.txt ssh box", 'redis-cli -a "$REDIS_PASSWORD" ping', "redis-cli -a $PW",
        "ldapsearch -x -W -D cn=admin", "docker login -u me --password-stdin <", 'docker login -u "$U" -p "$P"', "sqlcmd -S db1 -P $(SA_PASSWORD) -Q",
    ),
    lambda c: f"docker run -d -p 80{c.randrange(10, 99)}:80 -u 1000:1000 -w /{_word(c)} --name {_word(c)} {_word(c)}:1.{c.randrange(99)}",
    _line(
        "", "git -p log -3", "mkdir -p build/lib", "cp -pr a b", "ssh -p 2222 box", "grep -a -w -u x", "tar -cpzf a.tgz", "pytest -p no:cacheprovider",
        "ss -tlnp |", "nmap -p 1-65535", "docker run -p 8080:80 -v a:/b", "sed -n -u -e p", "lsof -a -p 4242 -u", "chmod -w",
    ),
    lambda c: f"bcrypt hashes begin with $2b$12$ and are 60 characters long at a cost of {c.randrange(4, 31)} too; $6$ is SHA-512 crypt, as {_word(c)} says",
    lambda c: f"machine {_word(c)} is down; login and password of {_word(c)} are in the vault",
    lambda c: f"//registry.npmjs.org/:_authToken=${{NPM_TOKEN}} # {_word(c)}",
    _line('"auth": ', *(f'"{one}",' for one in ("oauth2", "basic", "none", "bearer", "required", "client_credentials"))),
    lambda c: f"PublicKey = {drawn(B64, 42)(c)}0=",
    lambda c: f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{drawn(B64, 43)(c)} {_word(c)}@{_word(c)}",
    lambda c: f"SHA256:{drawn(B64, 43)(c)} {_word(c)}@{_word(c)} (ED25519)",
    lambda c: f"    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t{drawn(B64, 400)(c)}",
    lambda c: f"trace_id={drawn(HEX, 32)(c)} span_id={drawn(HEX, 16)(c)} {_word(c)}={c.randrange(9)}",
    lambda c: f"ETag: W/\"{drawn(HEX, 32)(c)}\" x-request-id: req_{drawn(ALNUM, 24)(c)}",
    lambda c: f"https://{_word(c)}.corp.net/d/{drawn(ALNUM, 10)(c)}/{_word(c)}-{_word(c)}?orgId=1&from=now-{c.randrange(9)}h",
    lambda c: f"s3://{_word(c)}-{_word(c)}/{drawn(HEX, 2)(c)}/{_uuid(c)}/part-0000{c.randrange(9)}.parquet",
    lambda c: f"pk-lf-{_uuid(c)} is the public one, of {_word(c)}",
)  # fmt: skip
"""Kinds of lines that a scanner may not have been measured with yet."""


def harmless(chance: Random) -> str:
    """A line, or two or three, without any secret."""
    return chance.choice(HARMLESS)(chance)
