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
from string import ascii_letters, ascii_uppercase, digits

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
}

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
}  # fmt: skip


def sample(family: str, chance: Random) -> tuple[str, str]:
    """A text with one secret of the family in it, and the secret."""
    value = FAMILIES[family](chance)
    place = chance.choice(_OWN.get(family, _PLACES))
    before, after = (" ".join(chance.choices(_WORDS, k=chance.randint(0, 12))) for _ in range(2))
    return f"{before}\n{place.format(value)}\n{after}", value


_HARMLESS: tuple[Make, ...] = (
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
)


def harmless(chance: Random) -> str:
    """A line without any secret."""
    return chance.choice(_HARMLESS)(chance)
