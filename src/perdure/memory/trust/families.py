"""The families of secrets: how each provider says its keys look, and where it says so (SEC-5).

Written from the providers' own pages. `words`: one of these patterns, which is cheap, has to be in the text before the
family's own is tried; without any it is tried on every text. The first group of a pattern is the secret. The engine is linear in the text (SEC-6).
Earlier families win where two fit, so the general ones come last.
"""

from __future__ import annotations

from perdure.memory.trust.family import SecretFamily
from perdure.memory.trust.named_values import ASSIGNED, COMMANDS, HEADERS, PLACED, TOLD

_LEFT = r"(?:^|[^A-Za-z0-9])"
_RIGHT = r"(?:[^A-Za-z0-9]|$)"
_GLUE = "[A-Za-z]{0,16}"  # a word that somebody wrote right before or behind it; a long run is some other code


def _token(name: str, source: str, words: str, body: str) -> SecretFamily:
    """A token that stands alone, between characters that can't belong to it."""
    return SecretFamily(name, source, _any_case(words), f"{_LEFT}(?i:({body})){_RIGHT}")


def _marked(name: str, source: str, words: str, body: str) -> SecretFamily:
    """A token with a mark that nothing else begins with: words may be glued to it."""
    return SecretFamily(name, source, _any_case(words), f"{_LEFT}{_GLUE}?(?i:({body})){_GLUE}{_RIGHT}", is_marked=True)


def _any_case(words: str) -> tuple[str, ...]:
    """The words in whatever case: what begins a sentence, or is made a name, has got capitals."""
    return tuple(f"(?i){word}" for word in words.split())


_WIDE = "[A-Za-z0-9_-]"  # base64 for URLs
# Line ends, also escaped ones, and what tools, quotations and code put around a line: its number, its file, signs, quotes.
_GAP = (
    r"(?:(?:\n|\\n)(?:[ \t]{0,12}(?://|[+])|[A-Za-z0-9_./-]{1,100}[:-][0-9]{1,6}[:-])|\\+[nrt]|[\s>|#\"'`,;*&.\\]|%0[AaDd]|<br ?/?>|"
    r"[0-9]{1,6}(?:→|\t|\\+t|[:|] ?)|[+] ?(?:\n|\\n))*"
)
_OUT = r"(?:-[ \t]*)?"  # of a line that a diff takes out
_PEM = (
    rf"(-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----{_GAP}(?:[A-Za-z-]{{3,20}}: [^\n\\]{{0,120}}{_GAP}){{0,4}}"
    rf"(?:{_OUT}[A-Za-z0-9+/=]{{24,}}{_GAP})+(?:{_OUT}[A-Za-z0-9+/=]{{1,64}}{_GAP}){{0,2}}(?:{_OUT}-----END [A-Z0-9 ]{{0,48}}-----)?)"
)
_PEM_END = (  # where a file was read in parts, its last
    rf"((?:[A-Za-z0-9+/=]{{24,}}{_GAP})*(?:[A-Za-z0-9+/=]{{4,64}}{_GAP}){{1,2}}-----END [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----)"
)
_PEM_LINES = rf"((?:[A-Za-z0-9+/]{{64,76}}(?:\\+[nr]|\r?\n){_GAP}){{2,}}(?:[A-Za-z0-9+/]{{20,76}}={{0,2}})?)"
_AWS = (
    r"(?i:secret[_ -]?access[_ -]?key|aws[_ -]?secret[_ -]?key)[\"']?\s{0,3}[:=]{1,2}\s{0,3}[\"']?([A-Za-z0-9/+]{40})"
)

CLOUDS = (
    SecretFamily(
        "aws-secret-key",
        "https://docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_access-keys.html",
        ("(?i)access[_ -]?key", "(?i)aws[_ -]?secret"),
        _AWS + r"(?:[^A-Za-z0-9/+]|$)",
    ),
    _token(
        "aws-access-key-id",
        "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html",
        "AKIA ASIA",
        "(?:AKIA|ASIA)[A-Z0-9]{16}",
    ),
    _marked("google-api-key", "https://cloud.google.com/docs/authentication/api-keys", "AIza", f"AIza{_WIDE}{{35}}"),
    _token(
        "google-oauth-token", "https://cloud.google.com/docs/authentication/token-types", r"ya29\.", rf"ya29\.{_WIDE}{{20,}}"
    ),
    _marked(
        "google-client-secret",
        "https://developers.google.com/identity/protocols/oauth2/web-server",
        "GOCSPX-",
        f"GOCSPX-{_WIDE}{{28}}",
    ),
    SecretFamily(
        "azure-storage-key",
        "https://learn.microsoft.com/en-us/azure/storage/common/storage-configure-connection-string",
        ("AccountKey=",),
        r"AccountKey=([A-Za-z0-9+/]{86}==)",
    ),
    SecretFamily(
        "azure-shared-access-key",
        "https://learn.microsoft.com/en-us/azure/service-bus-messaging/service-bus-sas",
        ("SharedAccessKey=",),
        r"SharedAccessKey=([A-Za-z0-9+/]{43}=)",
    ),
    SecretFamily(
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
    _marked("digitalocean-token", "https://docs.digitalocean.com/reference/api/create-personal-access-token/", "do[opr]_v1_",
           "do[opr]_v1_[0-9a-f]{64}"),
    _marked("heroku-token", "https://devcenter.heroku.com/articles/authentication", "HRKU-", f"HRKU-{_WIDE}{{36,80}}"),
    _marked("fly-token", "https://fly.io/docs/security/tokens/", "fm2_", "fm2_[A-Za-z0-9+/=_-]{60,}"),
    _marked("netlify-token", "https://docs.netlify.com/api/get-started/", "nfp_", "nfp_[A-Za-z0-9]{36,40}"),
    _token("cloudflare-origin-key", "https://developers.cloudflare.com/fundamentals/api/get-started/ca-keys/", r"v1\.0-[0-9a-f]",
           r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}"),
    _marked("supabase-key", "https://supabase.com/docs/guides/api/api-keys", "sbp_ sb_secret_",
           f"(?:sbp_[0-9a-f]{{40}}|sb_secret_{_WIDE}{{22,60}})"),
    _marked("planetscale-token", "https://planetscale.com/docs/api/reference/service-tokens", "pscale_",
           r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,64}"),
    _token("databricks-token", "https://docs.databricks.com/aws/en/dev-tools/auth/pat", "dapi", "dapi[0-9a-f]{32}(?:-[0-9])?"),
    _marked("tailscale-key", "https://tailscale.com/kb/1277/key-prefixes", "tskey-",
           "tskey-[a-z]{3,10}-[A-Za-z0-9]{8,20}-[A-Za-z0-9]{20,40}"),
    _marked("vault-token", "https://developer.hashicorp.com/vault/docs/concepts/tokens", r"hv[sbr]\.",
           rf"hv[sbr]\.{_WIDE}{{24,}}"),
    _token("terraform-token", "https://developer.hashicorp.com/terraform/cloud-docs/users-teams-organizations/api-tokens",
           r"\.atlasv1\.", rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_WIDE}{{60,70}}"),
    _token("pulumi-token", "https://www.pulumi.com/docs/pulumi-cloud/access-management/access-tokens/", "pul-",
           "pul-[0-9a-f]{40}"),
    _marked("doppler-token", "https://docs.doppler.com/docs/service-tokens", r"dp\.[a-z]{2,5}\.",
           r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    _marked("1password-token", "https://developer.1password.com/docs/service-accounts/", "ops_eyJ", f"ops_eyJ{_WIDE}{{100,}}=*"),
)  # fmt: skip

CODE = (
    _marked("github-token",
           "https://github.blog/engineering/platform-security/behind-githubs-new-authentication-token-formats/",
           "ghp_ gho_ ghu_ ghs_ ghr_", "gh[pousr]_[A-Za-z0-9]{36,}"),
    _marked("github-fine-grained-token", "https://docs.github.com/en/authentication/keeping-your-account-and-data-secure"
           "/about-authentication-to-github", "github_pat_", "github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _marked("gitlab-token", "https://docs.gitlab.com/security/tokens/",
           "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- glsoat- gloas- glffct-",
           r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|oas|ffct)-[A-Za-z0-9_.=-]{20,}"),
    _marked("bitbucket-token", "https://support.atlassian.com/bitbucket-cloud/docs/app-passwords/", "ATBB[A-Za-z0-9]{8}",
           "ATBB[A-Za-z0-9]{32}(?:[A-F0-9]{8})?"),
    _marked("atlassian-token", "https://support.atlassian.com/atlassian-account/docs/manage-api-tokens-for-your-atlassian-account/",
           "ATATT3", "ATATT3[A-Za-z0-9_=-]{80,}"),
    _marked("npm-token", "https://github.blog/changelog/2021-09-23-npm-has-a-new-access-token-format/", "npm_",
           "npm_[A-Za-z0-9]{36}"),
    _marked("pypi-token", "https://packaging.python.org/en/latest/specifications/pypirc/", "pypi-AgE", f"pypi-AgE{_WIDE}{{50,}}"),
    _marked("rubygems-key", "https://guides.rubygems.org/api-key-scopes/", "rubygems_", "rubygems_[0-9a-f]{48}"),
    _token("crates-token", "https://doc.rust-lang.org/cargo/reference/publishing.html", "cio[A-Za-z0-9]{16}", "cio[A-Za-z0-9]{32}"),
    _marked("docker-token", "https://docs.docker.com/security/access-tokens/", "dckr_pat_ dckr_oat_",
           f"dckr_[po]at_{_WIDE}{{27,36}}"),
    _marked("buildkite-token", "https://buildkite.com/docs/apis/managing-api-tokens", "bkua_", "bkua_[0-9a-f]{40}"),
    _marked("postman-key", "https://learning.postman.com/docs/developer/postman-api/authentication/", "PMAK-",
           "PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _marked("linear-key", "https://linear.app/developers/graphql", "lin_api_", "lin_api_[A-Za-z0-9]{40}"),
    _marked("figma-token", "https://www.figma.com/developers/api#access-tokens", "figd_", f"figd_{_WIDE}{{40}}"),
    _marked("sentry-token", "https://docs.sentry.io/account/auth-tokens/", "sntrys_ sntryu_",
           r"(?:sntryu_[0-9a-f]{64}|sntrys_[A-Za-z0-9+/=_-]{60,})"),
    _marked("grafana-token", "https://grafana.com/docs/grafana/latest/administration/service-accounts/", "glsa_ glc_",
           "(?:glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_[A-Za-z0-9+/=]{60,})"),
    _marked("newrelic-key", "https://docs.newrelic.com/docs/apis/intro-apis/new-relic-api-keys/", "NRAK-",
           "NRAK-[A-Z0-9]{27}"),
    _token("dynatrace-token", "https://docs.dynatrace.com/docs/manage/identity-access-management/access-tokens-and-oauth-clients"
           "/access-tokens", r"dt0[a-z][0-9]{2}\.", r"dt0[a-z][0-9]{2}\.[A-Z2-7]{24}\.[A-Z2-7]{64}"),
    SecretFamily("datadog-key", "https://docs.datadoghq.com/account_management/api-app-keys/", ("(?i)dd[_-]", "(?i)datadog"),
           r"(?i:dd|datadog)[_-](?i:api|app|application)[_-](?i:key)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
           rf"([0-9a-f]{{32}}(?:[0-9a-f]{{8}})?){_RIGHT}"),
)  # fmt: skip

MODELS = (
    _marked("anthropic-key", "https://docs.anthropic.com/en/api/overview", "sk-ant-", f"sk-ant-[a-z]{{2,10}}[0-9]{{2}}-{_WIDE}{{40,}}"),
    _marked("openrouter-key", "https://openrouter.ai/docs/api-reference/authentication", "sk-or-v1-", "sk-or-v1-[0-9a-f]{64}"),
    _marked("openai-key", "https://platform.openai.com/docs/api-reference/authentication", "sk-(?:proj|svcacct|admin|None)- T3BlbkFJ",
           f"(?:sk-(?:proj|svcacct|admin|None)-{_WIDE}{{40,}}|sk-[A-Za-z0-9]{{20}}T3BlbkFJ[A-Za-z0-9]{{20}})"),
    _token("sk-key", "https://platform.openai.com/docs/api-reference/authentication", "sk-[A-Za-z0-9]{20}", "sk-[A-Za-z0-9]{48}"),
    _marked("huggingface-token", "https://huggingface.co/docs/hub/security-tokens", "hf_", "hf_[A-Za-z0-9]{34,40}"),
    _marked("groq-key", "https://console.groq.com/docs/quickstart", "gsk_", "gsk_[A-Za-z0-9]{52}"),
    _marked("perplexity-key", "https://docs.perplexity.ai/guides/api-key-management", "pplx-", "pplx-[A-Za-z0-9]{40,56}"),
    _marked("replicate-token", "https://replicate.com/docs/topics/security/api-tokens", "r8_[A-Za-z0-9]{8}", "r8_[A-Za-z0-9]{37}"),
    _marked("xai-key", "https://docs.x.ai/docs/overview", "xai-[A-Za-z0-9]{8}", "xai-[A-Za-z0-9]{70,90}"),
)  # fmt: skip

SERVICES = (
    _marked("slack-token", "https://docs.slack.dev/authentication/tokens/", r"xox[abeoprs][-.] xapp-[0-9]",
           "(?:xox[abeoprs](?:\\.xox[a-z])?-[A-Za-z0-9-]{20,}|xapp-[0-9]-[A-Z0-9]{8,14}-[0-9]{8,16}-[a-f0-9]{32,80})"),
    SecretFamily("slack-webhook", "https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/", (r"hooks\.slack\.com",),
           r"hooks\.slack\.com/(?:services|workflows)/([A-Z0-9]{8,14}/[A-Z0-9]{8,14}/[A-Za-z0-9]{20,40})"),
    _marked("stripe-key", "https://docs.stripe.com/keys", "[sr]k_live_ [sr]k_test_ whsec_",
           "(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{32,64})"),
    _token("square-token", "https://developer.squareup.com/docs/build-basics/access-tokens", "EAAA[lE] sq0[ac]",
           f"(?:sq0(?:atp|csp)-{_WIDE}{{22,43}}|EAAA[lE]{_WIDE}{{59,60}})"),
    _marked("shopify-token", "https://shopify.dev/changelog/length-of-the-shopify-access-token-is-increasing", "shp(?:at|ca|pa|ss)_",
           "shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _token("sendgrid-key", "https://www.twilio.com/docs/sendgrid/ui/account-and-settings/api-keys", r"SG\.",
           rf"SG\.{_WIDE}{{22}}\.{_WIDE}{{43}}"),
    _token("mailgun-key", "https://documentation.mailgun.com/docs/mailgun/user-manual/api-key-mgmt/", "key-[0-9a-f]{8}",
           "key-[0-9a-f]{32}"),
    _token("mailchimp-key", "https://mailchimp.com/developer/marketing/guides/quick-start/", "-us[0-9]",
           "[0-9a-f]{32}-us[0-9]{1,2}"),
    _token("twilio-key", "https://www.twilio.com/docs/iam/api-keys", "SK[0-9a-f]{8}", "SK[0-9a-f]{32}"),
    _token("telegram-token", "https://core.telegram.org/bots/api#authorizing-your-bot", ":AA", f"[0-9]{{8,10}}:AA{_WIDE}{{33}}"),
    SecretFamily("discord-webhook", "https://discord.com/developers/docs/resources/webhook", ("/api/webhooks/",),
           rf"/api/webhooks/([0-9]{{17,20}}/{_WIDE}{{60,80}})"),
    SecretFamily("discord-token", "https://discord.com/developers/docs/reference#authentication", (r"\.[A-Za-z0-9_-]{6}\.",),
           rf"(?:^|[^A-Za-z0-9._-])([MNO][A-Za-z0-9]{{23,25}}\.[A-Za-z0-9_-]{{6}}\.{_WIDE}{{27,38}})(?:[^A-Za-z0-9_-]|$)"),
    _token("notion-token", "https://developers.notion.com/docs/authorization", "ntn_ secret_[A-Za-z0-9]{16}",
           "(?:ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{43})"),
    _token("airtable-token", "https://airtable.com/developers/web/guides/personal-access-tokens", r"\.[0-9a-f]{16}",
           r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _marked("age-key", "https://github.com/FiloSottile/age#readme", "AGE-SECRET-KEY-1", "AGE-SECRET-KEY-1[A-Z0-9]{58}"),
)  # fmt: skip

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
MORE = (
    _marked("langfuse-key", "https://langfuse.com/docs/api-and-data-platform/features/public-api", "sk-lf-", f"sk-lf-{_UUID}"),
    _token("deepseek-key", "https://api-docs.deepseek.com/", "sk-[0-9a-f]{16}", "sk-[0-9a-f]{32}"),
    _marked("nvidia-key", "https://docs.nvidia.com/nim/large-language-models/latest/getting-started.html", "nvapi-", f"nvapi-{_WIDE}{{60,72}}"),
    _marked("pinecone-key", "https://docs.pinecone.io/guides/projects/manage-api-keys", "pcsk_", "pcsk_[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,72}"),
    _marked("langsmith-key", "https://docs.langchain.com/langsmith/create-account-api-key", "lsv2_", "lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _marked("tavily-key", "https://docs.tavily.com/documentation/api-reference/introduction", "tvly-", "tvly-(?:dev-|prod-)?[A-Za-z0-9]{24,40}"),
    _token("fireworks-key", "https://docs.fireworks.ai/api-reference/introduction", "fw_[A-Za-z0-9]{8}", "fw_[A-Za-z0-9]{20,28}"),
    _marked("jina-key", "https://jina.ai/api-dashboard/", "jina_", f"jina_{_WIDE}{{50,72}}"),
    _marked("cerebras-key", "https://inference-docs.cerebras.ai/quickstart", "csk-", "csk-[a-z0-9]{44,56}"),
    _marked("together-key", "https://docs.together.ai/docs/quickstart", "tgp_v1_", f"tgp_v1_{_WIDE}{{36,50}}"),
    _token("voyage-key", "https://docs.voyageai.com/docs/api-key-and-installation", "pa-[A-Za-z0-9_-]{16}", f"pa-{_WIDE}{{43}}"),
    _token("elevenlabs-key", "https://elevenlabs.io/docs/api-reference/authentication", "sk_[0-9a-f]{16}", "sk_[0-9a-f]{48}"),
    _token("firecrawl-key", "https://docs.firecrawl.dev/introduction", "fc-[0-9a-f]{16}", "fc-[0-9a-f]{32}"),
    _marked("runpod-key", "https://docs.runpod.io/get-started/api-keys", "rpa_", "rpa_[A-Z0-9]{36,40}[a-z0-9]{0,8}"),
    _marked("e2b-key", "https://e2b.dev/docs/api-key", "e2b_", "e2b_[0-9a-f]{40}"),
    _token("brave-key", "https://api-dashboard.search.brave.com/app/documentation/web-search/get-started", "BSA[A-Za-z0-9_-]{8}", f"BSA{_WIDE}{{28}}"),
    _token("zhipu-key", "https://docs.bigmodel.cn/cn/guide/develop/http/introduction", r"[0-9a-f]{8}\.[A-Za-z0-9]{8}", r"[0-9a-f]{32}\.[A-Za-z0-9]{16}"),
    _token("modal-secret", "https://modal.com/docs/reference/modal.config", "as-[A-Za-z0-9]{12}", "as-[A-Za-z0-9]{22}"),
    _marked("wandb-key", "https://docs.wandb.ai/platform/hosting/iam/service-accounts", "wandb_v1_", f"wandb_v1_{_WIDE}{{40,100}}"),
    _marked("sonarqube-token", "https://docs.sonarsource.com/sonarqube-server/user-guide/managing-tokens/", "sq[pau]_", "sq[pau]_[0-9a-f]{40}"),
    _marked("circleci-token", "https://circleci.com/docs/managing-api-tokens/", "CCIPAT_ CCIPRJ_", "CCIP(?:AT|RJ)_[A-Za-z0-9]{18,26}_[0-9a-f]{40}"),
    _token("render-key", "https://render.com/docs/api", "rnd_", "rnd_[A-Za-z0-9]{28,36}"),
    _marked("neon-key", "https://neon.com/docs/manage/api-keys", "napi_", "napi_[a-z0-9]{60,70}"),
    _marked("vercel-token", "https://vercel.com/docs/rest-api#authentication", "vc[pirack]_", "vc[pirack]_[A-Za-z0-9]{24,64}"),
    _token("jfrog-token", "https://jfrog.com/help/r/jfrog-platform-administration-documentation/access-tokens", "AKCp cmVmdGtu", "(?:AKCp[A-Za-z0-9]{60,72}|cmVmdGtu[A-Za-z0-9]{52,60})"),
    _token("nuget-key", "https://learn.microsoft.com/en-us/nuget/nuget-org/publish-a-package", "oy2[a-z0-9]{16}", "oy2[a-z0-9]{43}"),
    _token("launchdarkly-key", "https://launchdarkly.com/docs/home/account/api", "(?:sdk|api)-[0-9a-f]{8}-", f"(?:sdk|api)-{_UUID}"),
    _marked("sourcegraph-token", "https://sourcegraph.com/docs/cli/how-tos/creating-an-access-token", "sgp_", "sgp_(?:local_|[0-9a-f]{16}_)?[0-9a-f]{40}"),
    _marked("posthog-key", "https://posthog.com/docs/api", "phx_", "phx_[A-Za-z0-9]{40,60}"),
    _marked("cockroach-key", "https://www.cockroachlabs.com/docs/cockroachcloud/managing-access", "CCDB1_", "CCDB1_[A-Za-z0-9]{22}_[A-Za-z0-9]{40}"),
    _marked("prefect-key", "https://docs.prefect.io/v3/how-to-guides/cloud/manage-users/api-keys", "pnu_ pnb_", "pn[ub]_[A-Za-z0-9]{36}"),
    _marked("readme-key", "https://docs.readme.com/main/reference/intro-to-the-readme-api", "rdme_", "rdme_[a-z0-9]{60,80}"),
    _marked("typeform-token", "https://www.typeform.com/developers/get-started/personal-access-token/", "tfp_", r"tfp_[A-Za-z0-9_.-]{40,64}"),
    _marked("contentful-token", "https://www.contentful.com/developers/docs/references/authentication/", "CFPAT-", f"CFPAT-{_WIDE}{{43}}"),
    _token("clickup-token", "https://developer.clickup.com/docs/authentication", "pk_[0-9]{5}", "pk_[0-9]{5,12}_[A-Z0-9]{32}"),
    _marked("hubspot-token", "https://developers.hubspot.com/docs/guides/apps/private-apps/overview", "pat-(?:na|eu|ap)", f"pat-(?:na|eu|ap)[0-9]-{_UUID}"),
    _marked("plaid-token", "https://plaid.com/docs/api/accounts/", "access-(?:sandbox|development|production)-", f"access-(?:sandbox|development|production)-{_UUID}"),
    _marked("brevo-key", "https://developers.brevo.com/docs/getting-started", "xkeysib- xsmtpsib-", "x(?:key|smtp)sib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    _token("resend-key", "https://resend.com/docs/api-reference/introduction", "re_[A-Za-z0-9]{6}", "re_[A-Za-z0-9]{8}_[A-Za-z0-9]{20,28}"),
    _marked("easypost-key", "https://docs.easypost.com/docs/authentication", "EZ[AT]K", "EZ[AT]K[A-Za-z0-9]{54}"),
    _marked("shippo-token", "https://docs.goshippo.com/docs/guides_general/authentication/", "shippo_", "shippo_(?:live|test)_[0-9a-f]{40}"),
    _marked("duffel-token", "https://duffel.com/docs/api/overview/making-requests", "duffel_", f"duffel_(?:live|test)_{_WIDE}{{40,48}}"),
    _marked("flutterwave-key", "https://developer.flutterwave.com/v3.0/docs/authentication", "FLWSECK", "FLWSECK(?:_TEST)?-[0-9a-zA-Z]{32}(?:-[0-9a-z]{8,20})?-X"),
    _marked("braintree-token", "https://developer.paypal.com/braintree/docs/guides/authorization/overview", r"access_token\$", r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"),
    _token("dropbox-token", "https://www.dropbox.com/developers/documentation/http/documentation", r"sl\.", rf"sl\.(?:u\.)?{_WIDE}{{120,}}"),
    _token("facebook-token", "https://developers.facebook.com/docs/facebook-login/guides/access-tokens", "EAA[A-Z]", "EAA[A-Z][A-Za-z0-9]{80,}"),
    _token("mapbox-token", "https://docs.mapbox.com/api/accounts/tokens/", r"sk\.eyJ", rf"sk\.eyJ{_WIDE}{{40,}}\.{_WIDE}{{20,}}"),
    _marked("maxmind-key", "https://dev.maxmind.com/geoip/updating-databases", "_mmk", "[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
)  # fmt: skip

# What stands in the files and commands that programs keep or are given their passwords in, and what people say.
_COMMANDS = (
    r"\bsshpass\s{1,3}-p\s{0,3}",
    r"\b(?:mysql|mariadb|mysqldump|mysqladmin)\b[^\n|;&]{0,200}?\s(?:-p|--password=)",
    r"\b(?:mongosh|mongo)\b[^\n|;&]{0,200}?\s(?:-p|--password)\s{1,3}",
    r"\bsqlcmd\b[^\n|;&]{0,200}?\s-P\s{0,3}",
    r"\bredis-cli\b[^\n|;&]{0,200}?\s-a\s{1,3}",
    r"\b(?:curl|wget)\b[^\n|;&]{0,300}?\s(?:-u|--user)\s{0,3}=?[\"']?[^\s:\"'$]{1,64}:",
    r"\bldapsearch\b[^\n|;&]{0,200}?\s-w\s{1,3}",
    r"\b(?:docker|podman|buildah|helm registry|oras)\s{1,3}login\b[^\n|;&]{0,200}?\s(?:-p\s{1,3}|--password[= ]\s{0,3})",
    r"\bsmbclient\b[^\n|;&]{0,200}?%",
    r"-pass(?:in|out)?\s{1,3}[\"']?pass:",
    r"\bhtpasswd\b[^\n|;&]{0,40}?\s-[a-zA-Z]{0,4}b[a-zA-Z]{0,4}\s{1,3}\S{1,100}\s{1,3}\S{1,64}\s{1,3}",
)
_WORD = r"(?:password|passphrase|passcode|passwd|pw|kennwort|passwort|mot de passe|contraseña|senha)"
_SAYS = r"(?:\b(?:is|was|ist|lautet|est|es|to)\b(?: now| jetzt)?:?|:|=|, type)"
# An argument of a command: in quotes whatever it looks like.
_ARGUMENT = r"\\?(?:\$?\"([^\"\n]{4,})\"|\$?'((?:[^'\\\n]|\\.){4,})'|[\"']?([^\s\"'|;&<>$-][^\s\"'|;&<>]{3,}))"
_SAID = r"[\"'`“]?([^\s\"'`,;<>(){}“”\\]{6,})"
FILES = (
    SecretFamily("npmrc", "https://docs.npmjs.com/cli/configuring-npm/npmrc", ("_auth", "_password", "npmAuth"),
           r"(?:_authToken|_auth|_password|npmAuthToken|npmAuthIdent)(?:[\"']?\s{0,3}[=:]\s{0,3}|\s{1,3})[\"']?([^\s\"'$=]{16,}={0,2})", "given"),
    SecretFamily("docker-auth", "https://docs.docker.com/reference/cli/docker/login/", ("auth", "identitytoken"),
           r"\\?\"(?:auth|identitytoken)\\?\"\s{0,3}:\s{0,3}\\?\"([A-Za-z0-9+/]{16,}={0,2}|[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_.-]{20,})\\?\"", "given"),
    SecretFamily("netrc", "https://everything.curl.dev/usingcurl/netrc.html", ("login",),
           r"login\s{1,8}\S{1,80}\s{1,8}(?:account\s{1,8}\S{1,80}\s{1,8})?password\s{1,8}(\S{3,})", "given"),
    SecretFamily("pgpass", "https://www.postgresql.org/docs/current/libpq-pgpass.html", (r":(?:[0-9]{4,5}|\*):",),
           r"(?m)(?:^|[\"'])(?:\[[0-9a-fA-F:]{2,40}\]|[A-Za-z0-9.*_/-]{1,80}):(?:[0-9]{4,5}|\*):[A-Za-z*_][A-Za-z0-9*_-]{0,63}:[A-Za-z*_][A-Za-z0-9*_.-]{0,63}:"
           r"([^\s:\"']{4,})(?:$|[\"'])", "given"),
    SecretFamily("password-hash", "https://www.man7.org/linux/man-pages/man5/crypt.5.html", (r"\$(?:1|2[aby]|5|6|7|y|gy|apr1|argon2)",),
           r"(\$(?:1|2[aby]|5|6|7|y|gy|apr1|argon2id?|argon2i)\$[A-Za-z0-9./,=+$]{20,})"),
    SecretFamily("command-password", "https://owasp.org/www-community/vulnerabilities/Use_of_hard-coded_password",
           ("sshpass", "mysql", "mariadb", "mongo", "sqlcmd", "redis-cli", "curl", "wget", "ldapsearch", "login", "smbclient", "-pass", "htpasswd"),
           rf"(?:{'|'.join(_COMMANDS)}){_ARGUMENT}", "given"),
    SecretFamily("piped-password", "https://docs.docker.com/reference/cli/docker/login/", ("--password-stdin", "sudo"),
           r"\b(?:echo|printf)\s{1,3}(?:-n\s{1,3})?[\"']?([^\s\"'|;&<>$]{4,})[\"']?\s{0,3}\|\s{0,3}(?:[a-z ]{1,40}login[^\n|;&]{0,100}?--password-stdin|sudo\s[^\n|;&]{0,40}?-S)", "given"),
    SecretFamily("kube-key", "https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/", ("client-key-data",),
           r"client-key-data\\?[\"']?(?:\s{0,3}[:=]\s{0,3}|\s{1,3})\\?[\"']?([A-Za-z0-9+/=]{40,})"),
    SecretFamily("wireguard-key", "https://www.wireguard.com/quickstart/", ("PrivateKey", "PresharedKey", "echo"),
           r"(?:(?:PrivateKey|PresharedKey)\s{0,3}=\s{0,3}|\becho\s{1,3}[\"']?)([A-Za-z0-9+/]{43}=)"),
    SecretFamily("putty-key", "https://the.earth.li/~sgtatham/putty/0.81/htmldoc/AppendixC.html", ("Private-Lines",),
           r"Private-Lines: [0-9]{1,4}\r?\n((?:[A-Za-z0-9+/=]{1,64}\r?\n)+)"),
    SecretFamily("wandb-login", "https://docs.wandb.ai/guides/track/environment-variables", ("(?i)wandb",), r"(?i)wandb[^\n]{0,40}?\b([0-9a-f]{40})\b"),
)  # fmt: skip

_KEYS = (
    "password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|auth[_-]?key|private[_-]?key|"
    "encryption[_-]?key|signing[_-]?key|master[_-]?key|account[_-]?key|credential"
)
_OPEN = r"[\"'`]?\s{0,3}(?::=|=>|==?|:)\s{0,3}\\?[\"'`]?"
GENERAL = (
    SecretFamily("private-key", "https://www.rfc-editor.org/rfc/rfc7468", ("PRIVATE KEY",), _PEM),
    SecretFamily("private-key-end", "https://www.rfc-editor.org/rfc/rfc7468", ("-----END",), _PEM_END),
    SecretFamily("private-key-lines", "https://www.rfc-editor.org/rfc/rfc7468", (), _PEM_LINES, "lines"),
    _token("jwt", "https://www.rfc-editor.org/rfc/rfc7519", r"\.eyJ",
           rf"eyJ{_WIDE}{{10,}}\.eyJ{_WIDE}{{10,}}\.{_WIDE}{{16,}}"),
    SecretFamily("url-password", "https://www.rfc-editor.org/rfc/rfc3986#section-3.2.1", ("://",),
           r"://[^\s:/@\"'<>`]*:([^\s/\"'<>`]{3,})@[A-Za-z0-9\[]", "password"),
    SecretFamily("auth-header", "https://www.rfc-editor.org/rfc/rfc6750", ("(?i)bearer", "(?i)basic", "(?i)authorization"),
           r"(?i)(?:bearer|basic|authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?token)\s{1,3}([A-Za-z0-9+/=._~-]{16,})", "random"),
    SecretFamily("password", "https://owasp.org/www-community/vulnerabilities/Use_of_hard-coded_password", ("(?i)passw", "(?i)passphrase", "(?i)pwd"),
           rf"(?i)(?:password|passwd|passphrase|pwd){_OPEN}([^\s\"'`,;<>(){{}}\[\]\\]{{8,}})", "password"),
    SecretFamily("generic", "https://cwe.mitre.org/data/definitions/798.html", ("(?i)passw", "(?i)passphrase", "(?i)pwd", "(?i)secret", "(?i)token", "(?i)key", "(?i)credential"),
           rf"(?i)(?:{_KEYS})[a-z0-9_-]{{0,20}}{_OPEN}([A-Za-z0-9_+/=.~!@#$%^&*-]{{12,}})", "random"),
)  # fmt: skip

# What people say of a password; behind what programs write.
SAID = (
    SecretFamily("spoken-password", "https://owasp.org/www-community/vulnerabilities/Use_of_hard-coded_password", (f"(?i){_WORD}", "(?i)my pass"),
           rf"(?i)(?:\b(?:{_WORD}|my pass)\b[^\n\"'`:=“]{{0,48}}?{_SAYS}\s{{1,3}}{_SAID}|\bwith (?:the )?{_WORD}\s{{1,3}}{_SAID}|\b{_WORD}\b[^\n\"'`:=“]{{0,48}}?,? type\s{{1,3}}{_SAID})", "spoken"),
    SecretFamily("named-password", "https://owasp.org/www-community/vulnerabilities/Use_of_hard-coded_password", (f"(?i)as (?:the |my |its )?{_WORD}",),
           rf"(?i)\buse\s{{1,3}}{_SAID}[\"'`”]?\s{{1,3}}as (?:the |my |its )?{_WORD}", "spoken"),
)  # fmt: skip

FAMILIES = (
    *CLOUDS,
    *CODE,
    *MODELS,
    *SERVICES,
    *MORE,
    *FILES,
    *GENERAL,
    *HEADERS,
    *ASSIGNED,
    *PLACED,
    *COMMANDS,
    *SAID,
    *TOLD,
)
