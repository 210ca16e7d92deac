"""The families of secrets: how each provider says its keys look, and where it says so (SEC-5).

Written from the providers' own pages. `words`: one of these patterns, which is cheap, has to be in the text before the
family's own is tried; without any it is tried on every text. The first group of a pattern is the secret. The engine is linear in the text (SEC-6).
Earlier families win where two fit, so the general ones come last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Check = Literal["none", "password", "random"]


@dataclass(frozen=True, slots=True)
class Family:
    """`check`: what the value has to look like besides: chosen by somebody, or drawn by chance."""

    name: str
    source: str
    words: tuple[str, ...]
    pattern: str
    check: Check = "none"


_LEFT = r"(?:^|[^A-Za-z0-9])"
_RIGHT = r"(?:[^A-Za-z0-9]|$)"


def _token(name: str, source: str, words: str, body: str) -> Family:
    """A token that stands alone, between characters that can't belong to it."""
    return Family(name, source, tuple(words.split()), f"{_LEFT}({body}){_RIGHT}")


_WIDE = "[A-Za-z0-9_-]"  # base64 for URLs
_GAP = r"(?:\\+[nr]|\s)*"  # line ends, also escaped ones
_PEM = (
    rf"(-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----{_GAP}(?:[A-Za-z-]{{3,20}}: [^\n\\]{{0,120}}{_GAP}){{0,4}}"
    rf"(?:[A-Za-z0-9+/=]{{24,}}{_GAP})+(?:[A-Za-z0-9+/=]{{1,64}}{_GAP}){{0,2}}(?:-----END [A-Z0-9 ]{{0,48}}-----)?)"
)
_AWS = (
    r"(?i:secret[_ -]?access[_ -]?key|aws[_ -]?secret[_ -]?key)[\"']?\s{0,3}[:=]{1,2}\s{0,3}[\"']?([A-Za-z0-9/+]{40})"
)

CLOUDS = (
    Family(
        "aws-secret-key",
        "https://docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_access-keys.html",
        (),
        _AWS + r"(?:[^A-Za-z0-9/+]|$)",
    ),
    _token(
        "aws-access-key-id",
        "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html",
        "AKIA ASIA",
        "(?:AKIA|ASIA)[A-Z0-9]{16}",
    ),
    _token("google-api-key", "https://cloud.google.com/docs/authentication/api-keys", "AIza", f"AIza{_WIDE}{{35}}"),
    _token(
        "google-oauth-token", "https://cloud.google.com/docs/authentication/token-types", r"ya29\.", rf"ya29\.{_WIDE}{{20,}}"
    ),
    _token(
        "google-client-secret",
        "https://developers.google.com/identity/protocols/oauth2/web-server",
        "GOCSPX-",
        f"GOCSPX-{_WIDE}{{28}}",
    ),
    Family(
        "azure-storage-key",
        "https://learn.microsoft.com/en-us/azure/storage/common/storage-configure-connection-string",
        ("AccountKey=",),
        r"AccountKey=([A-Za-z0-9+/]{86}==)",
    ),
    Family(
        "azure-shared-access-key",
        "https://learn.microsoft.com/en-us/azure/service-bus-messaging/service-bus-sas",
        ("SharedAccessKey=",),
        r"SharedAccessKey=([A-Za-z0-9+/]{43}=)",
    ),
    Family(
        "azure-sas",
        "https://learn.microsoft.com/en-us/azure/storage/common/storage-sas-overview",
        ("sig=",),
        r"[?&;]sig=([A-Za-z0-9%+/]{40,80}(?:%3[Dd]|=)?)",
    ),
    _token(
        "azure-client-secret",
        "https://learn.microsoft.com/en-us/purview/sit-defn-azure-ad-client-secret",
        "[0-9]Q~",
        r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}",
    ),
    _token(
        "azure-devops-token",
        "https://learn.microsoft.com/en-us/azure/devops/organizations/accounts/use-personal-access-tokens-to-authenticate",
        "AZDO",
        "[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}",
    ),
    _token("alibaba-key-id", "https://www.alibabacloud.com/help/en/ram/user-guide/create-an-accesskey-pair", "LTAI[A-Za-z0-9]{8}",
           "LTAI[A-Za-z0-9]{16,20}"),
    _token("digitalocean-token", "https://docs.digitalocean.com/reference/api/create-personal-access-token/", "do[opr]_v1_",
           "do[opr]_v1_[0-9a-f]{64}"),
    _token("heroku-token", "https://devcenter.heroku.com/articles/authentication", "HRKU-", f"HRKU-{_WIDE}{{36,80}}"),
    _token("fly-token", "https://fly.io/docs/security/tokens/", "fm2_", "fm2_[A-Za-z0-9+/=_-]{60,}"),
    _token("netlify-token", "https://docs.netlify.com/api/get-started/", "nfp_", "nfp_[A-Za-z0-9]{36,40}"),
    _token("cloudflare-origin-key", "https://developers.cloudflare.com/fundamentals/api/get-started/ca-keys/", r"v1\.0-[0-9a-f]",
           r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}"),
    _token("supabase-key", "https://supabase.com/docs/guides/api/api-keys", "sbp_ sb_secret_",
           f"(?:sbp_[0-9a-f]{{40}}|sb_secret_{_WIDE}{{22,60}})"),
    _token("planetscale-token", "https://planetscale.com/docs/api/reference/service-tokens", "pscale_",
           r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,64}"),
    _token("databricks-token", "https://docs.databricks.com/aws/en/dev-tools/auth/pat", "dapi", "dapi[0-9a-f]{32}(?:-[0-9])?"),
    _token("tailscale-key", "https://tailscale.com/kb/1277/key-prefixes", "tskey-",
           "tskey-[a-z]{3,10}-[A-Za-z0-9]{8,20}-[A-Za-z0-9]{20,40}"),
    _token("vault-token", "https://developer.hashicorp.com/vault/docs/concepts/tokens", r"hv[sbr]\.",
           rf"hv[sbr]\.{_WIDE}{{24,}}"),
    _token("terraform-token", "https://developer.hashicorp.com/terraform/cloud-docs/users-teams-organizations/api-tokens",
           r"\.atlasv1\.", rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_WIDE}{{60,70}}"),
    _token("pulumi-token", "https://www.pulumi.com/docs/pulumi-cloud/access-management/access-tokens/", "pul-",
           "pul-[0-9a-f]{40}"),
    _token("doppler-token", "https://docs.doppler.com/docs/service-tokens", r"dp\.[a-z]{2,5}\.",
           r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    _token("1password-token", "https://developer.1password.com/docs/service-accounts/", "ops_eyJ", f"ops_eyJ{_WIDE}{{100,}}=*"),
)  # fmt: skip

CODE = (
    _token("github-token",
           "https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/",
           "ghp_ gho_ ghu_ ghs_ ghr_", "gh[pousr]_[A-Za-z0-9]{36,}"),
    _token("github-fine-grained-token", "https://docs.github.com/en/authentication/keeping-your-account-and-data-secure"
           "/about-authentication-to-github", "github_pat_", "github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _token("gitlab-token", "https://docs.gitlab.com/security/tokens/",
           "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- glsoat- gloas- glffct-",
           r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|oas|ffct)-[A-Za-z0-9_.=-]{20,}"),
    _token("bitbucket-token", "https://support.atlassian.com/bitbucket-cloud/docs/app-passwords/", "ATBB[A-Za-z0-9]{8}",
           "ATBB[A-Za-z0-9]{32}(?:[A-F0-9]{8})?"),
    _token("atlassian-token", "https://support.atlassian.com/atlassian-account/docs/manage-api-tokens-for-your-atlassian-account/",
           "ATATT3", "ATATT3[A-Za-z0-9_=-]{80,}"),
    _token("npm-token", "https://github.blog/changelog/2021-09-23-npm-has-a-new-access-token-format/", "npm_",
           "npm_[A-Za-z0-9]{36}"),
    _token("pypi-token", "https://packaging.python.org/en/latest/specifications/pypirc/", "pypi-AgE", f"pypi-AgE{_WIDE}{{50,}}"),
    _token("rubygems-key", "https://guides.rubygems.org/api-key-scopes/", "rubygems_", "rubygems_[0-9a-f]{48}"),
    _token("crates-token", "https://doc.rust-lang.org/cargo/reference/publishing.html", "cio[A-Za-z0-9]{16}", "cio[A-Za-z0-9]{32}"),
    _token("docker-token", "https://docs.docker.com/security/access-tokens/", "dckr_pat_ dckr_oat_",
           f"dckr_[po]at_{_WIDE}{{27,36}}"),
    _token("buildkite-token", "https://buildkite.com/docs/apis/managing-api-tokens", "bkua_", "bkua_[0-9a-f]{40}"),
    _token("postman-key", "https://learning.postman.com/docs/developer/postman-api/authentication/", "PMAK-",
           "PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _token("linear-key", "https://linear.app/developers/graphql", "lin_api_", "lin_api_[A-Za-z0-9]{40}"),
    _token("figma-token", "https://www.figma.com/developers/api#access-tokens", "figd_", f"figd_{_WIDE}{{40}}"),
    _token("sentry-token", "https://docs.sentry.io/account/auth-tokens/", "sntrys_ sntryu_",
           r"(?:sntryu_[0-9a-f]{64}|sntrys_[A-Za-z0-9+/=_-]{60,})"),
    _token("grafana-token", "https://grafana.com/docs/grafana/latest/administration/service-accounts/", "glsa_ glc_",
           "(?:glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_[A-Za-z0-9+/=]{60,})"),
    _token("newrelic-key", "https://docs.newrelic.com/docs/apis/intro-apis/new-relic-api-keys/", "NRAK-",
           "NRAK-[A-Z0-9]{27}"),
    _token("dynatrace-token", "https://docs.dynatrace.com/docs/manage/identity-access-management/access-tokens-and-oauth-clients"
           "/access-tokens", r"dt0[a-z][0-9]{2}\.", r"dt0[a-z][0-9]{2}\.[A-Z2-7]{24}\.[A-Z2-7]{64}"),
    Family("datadog-key", "https://docs.datadoghq.com/account_management/api-app-keys/", (),
           r"(?i:dd|datadog)[_-](?i:api|app|application)[_-](?i:key)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
           rf"([0-9a-f]{{32}}(?:[0-9a-f]{{8}})?){_RIGHT}"),
)  # fmt: skip

MODELS = (
    _token("anthropic-key", "https://docs.anthropic.com/en/api/overview", "sk-ant-", f"sk-ant-[a-z]{{2,10}}[0-9]{{2}}-{_WIDE}{{40,}}"),
    _token("openrouter-key", "https://openrouter.ai/docs/api-reference/authentication", "sk-or-v1-", "sk-or-v1-[0-9a-f]{64}"),
    _token("openai-key", "https://platform.openai.com/docs/api-reference/authentication", "sk-(?:proj|svcacct|admin|None)- sk-[A-Za-z0-9]{20}",
           f"(?:sk-(?:proj|svcacct|admin|None)-{_WIDE}{{40,}}|sk-[A-Za-z0-9]{{20}}T3BlbkFJ[A-Za-z0-9]{{20}}|sk-[A-Za-z0-9]{{48}})"),
    _token("huggingface-token", "https://huggingface.co/docs/hub/security-tokens", "hf_", "hf_[A-Za-z0-9]{34,40}"),
    _token("groq-key", "https://console.groq.com/docs/quickstart", "gsk_", "gsk_[A-Za-z0-9]{52}"),
    _token("perplexity-key", "https://docs.perplexity.ai/guides/api-key-management", "pplx-", "pplx-[A-Za-z0-9]{40,56}"),
    _token("replicate-token", "https://replicate.com/docs/topics/security/api-tokens", "r8_[A-Za-z0-9]{8}", "r8_[A-Za-z0-9]{37}"),
    _token("xai-key", "https://docs.x.ai/docs/overview", "xai-[A-Za-z0-9]{8}", "xai-[A-Za-z0-9]{70,90}"),
)  # fmt: skip

SERVICES = (
    _token("slack-token", "https://docs.slack.dev/authentication/tokens/", r"xox[abeoprs][-.] xapp-[0-9]",
           "(?:xox[abeoprs](?:\\.xox[a-z])?-[A-Za-z0-9-]{20,}|xapp-[0-9]-[A-Z0-9]{8,14}-[0-9]{8,16}-[a-f0-9]{32,80})"),
    Family("slack-webhook", "https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/", (r"hooks\.slack\.com",),
           r"hooks\.slack\.com/(?:services|workflows)/([A-Z0-9]{8,14}/[A-Z0-9]{8,14}/[A-Za-z0-9]{20,40})"),
    _token("stripe-key", "https://docs.stripe.com/keys", "_live_ _test_ whsec_",
           "(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{32,64})"),
    _token("square-token", "https://developer.squareup.com/docs/build-basics/access-tokens", "EAAA[lE] sq0[ac]",
           f"(?:sq0(?:atp|csp)-{_WIDE}{{22,43}}|EAAA[lE]{_WIDE}{{59,60}})"),
    _token("shopify-token", "https://shopify.dev/changelog/length-of-the-shopify-access-token-is-increasing", "shp(?:at|ca|pa|ss)_",
           "shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _token("sendgrid-key", "https://www.twilio.com/docs/sendgrid/ui/account-and-settings/api-keys", r"SG\.",
           rf"SG\.{_WIDE}{{22}}\.{_WIDE}{{43}}"),
    _token("mailgun-key", "https://documentation.mailgun.com/docs/mailgun/user-manual/api-key-mgmt/", "key-[0-9a-f]{8}",
           "key-[0-9a-f]{32}"),
    _token("mailchimp-key", "https://mailchimp.com/developer/marketing/guides/quick-start/", "-us[0-9]",
           "[0-9a-f]{32}-us[0-9]{1,2}"),
    _token("twilio-key", "https://www.twilio.com/docs/iam/api-keys", "SK[0-9a-f]{8}", "SK[0-9a-f]{32}"),
    _token("telegram-token", "https://core.telegram.org/bots/api#authorizing-your-bot", ":AA", f"[0-9]{{8,10}}:AA{_WIDE}{{33}}"),
    Family("discord-webhook", "https://discord.com/developers/docs/resources/webhook", ("/api/webhooks/",),
           rf"/api/webhooks/([0-9]{{17,20}}/{_WIDE}{{60,80}})"),
    Family("discord-token", "https://discord.com/developers/docs/reference#authentication", (),
           rf"(?:^|[^A-Za-z0-9._-])([MNO][A-Za-z0-9]{{23,25}}\.[A-Za-z0-9_-]{{6}}\.{_WIDE}{{27,38}})(?:[^A-Za-z0-9_-]|$)"),
    _token("notion-token", "https://developers.notion.com/docs/authorization", "ntn_ secret_[A-Za-z0-9]{16}",
           "(?:ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{43})"),
    _token("airtable-token", "https://airtable.com/developers/web/guides/personal-access-tokens", r"\.[0-9a-f]{16}",
           r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _token("age-key", "https://github.com/FiloSottile/age#readme", "AGE-SECRET-KEY-1", "AGE-SECRET-KEY-1[A-Z0-9]{58}"),
)  # fmt: skip

_KEYS = (
    "password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|auth[_-]?key|private[_-]?key|"
    "encryption[_-]?key|signing[_-]?key|master[_-]?key|account[_-]?key|credential"
)
_OPEN = r"[\"'`]?\s{0,3}(?::=|=>|==?|:)\s{0,3}\\?[\"'`]?"
GENERAL = (
    Family("private-key", "https://www.rfc-editor.org/rfc/rfc7468", ("PRIVATE KEY",), _PEM),
    _token("jwt", "https://www.rfc-editor.org/rfc/rfc7519", r"\.eyJ",
           rf"eyJ{_WIDE}{{10,}}\.eyJ{_WIDE}{{10,}}\.{_WIDE}{{16,}}"),
    Family("url-password", "https://www.rfc-editor.org/rfc/rfc3986#section-3.2.1", ("://",),
           r"://[^\s:/@\"'<>`]*:([^\s/\"'<>`]{3,})@[A-Za-z0-9\[]", "password"),
    Family("auth-header", "https://www.rfc-editor.org/rfc/rfc6750", (),
           r"(?i)(?:bearer|basic|authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?token)\s{1,3}([A-Za-z0-9+/=._~-]{16,})", "random"),
    Family("password", "https://owasp.org/www-community/vulnerabilities/Use_of_hard-coded_password", (),
           rf"(?i)(?:password|passwd|passphrase|pwd){_OPEN}([^\s\"'`,;<>(){{}}\[\]\\]{{8,}})", "password"),
    Family("generic", "https://cwe.mitre.org/data/definitions/798.html", (),
           rf"(?i)(?:{_KEYS})[a-z0-9_-]{{0,20}}{_OPEN}([A-Za-z0-9_+/=.~!@#$%^&*-]{{12,}})", "random"),
)  # fmt: skip

FAMILIES = (*CLOUDS, *CODE, *MODELS, *SERVICES, *GENERAL)
