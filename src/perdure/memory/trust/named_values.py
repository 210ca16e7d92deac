"""Families of secrets that only the name, the option or the sentence before them tells: passwords of every look (SEC-5).

A password may be a plain word. So here the place decides: what stands behind `DB_PASS=`, in `<password>`, behind
`IDENTIFIED BY` or "the password is" is one unless it reads as a stand-in, a type or code. The weaker the place, the more
the value has to look like one (`SecretFamily.check`).
"""

from __future__ import annotations

from perdure.memory.trust.family import Check, SecretFamily

_HARD_CODED = "https://owasp.org/www-community/vulnerabilities/Use_of_hard-coded_password"
_WEAKNESS = "https://cwe.mitre.org/data/definitions/798.html"

# Names that end so are those of passwords; `pass` and `pw` only as a word of their own, or behind a joint.
_PW = (
    r"(?i:passw(?:or)?d|passphrase|passcode|passwort|kennwort|mot_?de_?passe|contrase(?:ñ|n)a|senha|wachtwoord|has(?:l|ł)o|heslo|"
    r"salasana|lozinka|losenord|adgangskode)"
)
_PASS = rf"{_PW}|(?:\b|[_.-])(?i:pass|pwd|pw|mdp)|[a-z0-9](?:Pass|Pwd|Pw)|SSHPASS"
_SECRET = r"(?i:secret|token|key|psk|salt|credentials?|key[_.-]?base)|_PIN|_SESSION"
_STAGE = r"(?i:[_.-]?(?:[0-9]{1,2}|dev|prod|test|local|staging|live|base64|b64))?"
_NAME = rf"(?:{_PASS}|{_SECRET}){_STAGE}"
_VALUE = r"([^\s\"'`,;<>(){}\\|&\[\]]{4,})"
_TYPED = r"(?:\s{0,2}:\s{0,2}[A-Za-z_\[\]., |*&]{1,30})?"
_WORDS = (
    "(?i)pass",
    "(?i)pwd",
    "(?i)secret",
    "(?i)token",
    "(?i)key",
    "(?i)kennwort",
    "(?i)senha",
    "(?i)credential",
    "(?i)psk",
    "pw",
    "salt",
    "_PIN",
    "_SESSION",
)


def _named(name: str, pattern: str, check: Check = "named", words: tuple[str, ...] = _WORDS) -> SecretFamily:
    return SecretFamily(name, _HARD_CODED, words, pattern, check)


ASSIGNED = (
    # password = "word", 'password' => 'word', "dbPass": "word", os.environ["X_PASS"] = "word"
    _named("assigned-literal",
           rf"(?:{_NAME})[\"'`\]\\]{{0,3}}(?:{_TYPED}\s{{0,3}}=|\s{{0,3}}(?::=|=>|={{1,3}}|:))\s{{0,3}}[a-zA-Z]{{0,2}}(?:\\{{0,3}}\"([^\"\s\\]{{4,}})\\{{0,3}}\"|\\{{0,3}}'([^'\s\\]{{4,}})\\{{0,3}}'|`([^`\s]{{4,}})`)"),
    # DB_PASS=word, password: word, --set auth.password=word, Password=word; in a connection, ?password=word& in an address
    _named("assigned-value", rf"(?:{_NAME})[\"']?[ \t]{{0,12}}(?:=|:|[ \t]is[ \t])[ \t]{{0,12}}[\"']?{_VALUE}", "assigned"),
    # --password word, --token word; ["--password", "word"]
    _named("option",
           r"(?:^|[\s\"'(\[`])--?(?i:[a-z0-9]+-){0,4}(?i:password|passwd|pass|passphrase|passcode|pwd|token|secret|key|psk)(?:[ \t]{1,3}|[\"'],\s{0,3}[\"'])[\"']?([^\s\"'`\[\]<>(){}|;&$,=-][^\s\"'`|;&<>()]{3,})", "option"),
    # <password>word</password>, <string name="api_key">word</string>
    _named("element", rf"<[^<>]{{0,80}}?(?:{_NAME})[\"']?(?:\s[^<>]{{0,120}})?>\s{{0,20}}([^<>\s]{{4,}})\s{{0,20}}</"),
    # <add key="SqlPassword" value="word"/>, - name: DB_PASSWORD / value: word
    _named("pair",
           rf"(?i:key|name|id|property|option|field)\\?[\"']?\s{{0,3}}[:=]\s{{0,3}}\\?[\"']?[A-Za-z0-9_.:/-]{{0,60}}?(?:{_NAME})\\?[\"']?\s{{0,3}},?\s{{0,40}}\\?[\"']?(?i:[a-z]{{0,9}}value|default)\\?[\"']?\s{{0,3}}[:=]\s{{0,3}}\\?[\"']?([^\s\"'`<>\\]{{4,}})",
           words=(r"(?i)value\\?[\"']?\s?[:=]", r"(?i)default\\?[\"']?\s?[:=]")),
    # define('DB_PASSWORD', 'word'), setPassword("word")
    _named("call",
           rf"(?:\((?:\s{{0,3}}[\"'][^\"'\n]{{1,60}}[\"'],)?\s{{0,3}}[\"'][A-Za-z0-9_.:/-]{{0,60}}?(?:{_NAME})[\"'],|(?:{_PW}|(?:[Ss]et|[Ww]ith)_?(?i:pass|secret|token|(?:api|access)_?key))\s{{0,2}}\()\s{{0,3}}[\"']([^\"'\s]{{4,}})[\"']\s{{0,2}}[,)]",
           words=(r"(?i)(?:pass|pwd|passw(?:or)?d|secret|token|key|credentials?|salt|pin|session)[\"'],", r"(?i)(?:pass|passw(?:or)?d|passphrase|secret|token|key)\s?\(")),
)  # fmt: skip


def _given(name: str, words: str, pattern: str, check: Check = "literal") -> SecretFamily:
    return SecretFamily(name, _HARD_CODED, tuple(words.split()), pattern, check)


PLACED = (
    SecretFamily("signed-address", "https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html", ("(?i)signature=", "(?i)[?&]sig=", "(?i)hmac="),
           r"(?i)[?&](?:x-amz-|x-goog-)?(?:signature|sig|hmac|x-amz-security-token)=([A-Za-z0-9%+/=_-]{24,})"),
    _given("credential-pair", "(?i)auth[a-z]{0,5}[=(] (?i)credentials?[=(]",
           r"(?i)(?:auth|credentials?)\s{0,2}(?:=\s{0,2}\(?|\(|:\s{0,2}[\[(])\s{0,2}[\"'][^\"'\n]{1,64}[\"']\s{0,2},\s{0,2}[\"']([^\"'\s]{6,})[\"']", "given"),
    _given("login-call", "(?i)PlainAuth\\( (?i)getConnection\\( (?i)BasicAuth\\( (?i)Credential\\(",
           r"(?i)(?:PlainAuth|getConnection|BasicAuth|Credential)\((?:\s{0,3}[\"'][^\"'\n]{0,120}[\"']\s{0,2},){1,2}\s{0,3}[\"']([^\"'\s]{6,})[\"']", "given"),
    _given("sql-password", "(?i)identified (?i)password[=(\\s]{1,4}'",
           r"(?i)(?:\bidentified\s{1,3}(?:with\s{1,3}\S{1,40}\s{1,3})?(?:by|as)(?:\s{1,3}password)?|\bpassword)\s{0,3}(?:=\s{0,3})?\(?\s{0,3}(?:\"([^\"\n\s]{4,})\"|'((?:[^'\n\s]|''){4,})')"),
    _given("directive", "requirepass masterauth masterpass bindpw rootpw RootPW auth_pass community psk enable\\s username\\s",
           r"(?m)(?:^|[\s\"'])(?:(?:requirepass|masterauth|masterpass|bindpw|rootpw|olcRootPW|auth_pass|snmp-server community|r[ow]community6?|enable (?:secret|password)(?: [0-9])?|username \S{1,40}(?: privilege [0-9]{1,2})? (?:password|secret)(?: [0-9])?)[ \t]{1,8}|psk\s{0,2}=\s{0,2})[\"']?([^\s\"']{4,})", "option"),
    _given("directive-word", "(?i)erlang (?i)wpa (?i)wi-?fi (?i)wlan",
           r"(?:(?i:erlang[ _.-]?cookie)\S{0,3}\s{0,2}(?:is|:|=|\n)?\s{0,2}|(?i:\b(?:wpa[23]?|wi-?fi|wlan)\b[^\n]{0,24}?(?:key|pass\w{0,6}|psk))\s{0,2}(?::|=|is)\s{1,3})[\"'`]?([^\s\"'`]{8,})", "option"),
    _given("secure-string", "(?i)SecureString", r"(?i)ConvertTo-SecureString\s(?:\s{0,3}-(?:String|AsPlainText|Force)){0,3}\s{0,3}(?:\"([^\"\n$]{3,})\"|'([^'\n]{3,})'|([^\s\"'|;&$(-][^\s\"'|;&]{3,}))", "option"),
    _given("wifi-code", "(?i)WIFI:", r"(?i)WIFI:(?:[A-Z]:(?:[^;\\\n]|\\.){0,64};){0,5}?P:((?:[^;\\\n]|\\.){3,64});"),
    _given("redis-auth", "AUTH\\s", r"(?:^|[\s>$\"'])AUTH(?: [a-z][\w-]{0,40})?[ \t]{1,3}[\"']?([^\s\"'`]{6,})", "mixed"),
    _given("login-line", "chpasswd", r"(?:^|[\s\"'])(?:echo|printf)\s{1,3}(?:-[a-z]\s{1,3})?[\"']?[A-Za-z0-9_.-]{1,40}:([^\s\"'|]{4,})[\"']?\s{0,3}\|\s{0,3}(?:sudo\s)?chpasswd", "given"),
    _given("vpn-login", "(?i)auth-user-pass", r"(?i)<auth-user-pass>\s{0,4}\S{1,80}\s{1,4}(\S{4,}?)\s{0,4}</", "given"),
    _given("oracle-login", "jdbc:oracle sqlplus", r"(?:jdbc:oracle:\w{1,8}:|\bsqlplus\s{1,3}(?:-[A-Za-z]\s){0,2})[\"']?[A-Za-z0-9_$#]{1,40}/([^\s\"'@/]{4,})@?", "given"),
    _given("basic-hash", "{SHA} {SSHA {CRYPT} {MD5}", r"(\{S?SHA(?:256|512)?\}[A-Za-z0-9+/]{20,}={0,2}|\{(?:CRYPT|MD5|SMD5)\}[A-Za-z0-9$./+=]{13,})", "none"),
    _given("spaced-value", "ENV\\s (?i)configure\\sset (?i)config\\sset (?i)secrets?\\sset",
           rf"(?:\bENV|(?i:configure set|config set|secrets? set))\s{{1,3}}[A-Za-z0-9_.-]{{0,60}}?(?:{_NAME})\s{{1,3}}[\"']?{_VALUE}", "named"),
    _given("quoted-variable", "PASS SECRET TOKEN", r"[A-Z0-9_]*(?:PASSWORD|PASSWD|PASSPHRASE|PASS|SECRET|TOKEN)=(?:\"([^\"\n]{4,80})\"|'([^'\n]{4,80})')", "given"),
    _given("quoted-phrase", "(?i)pass(?:word|phrase|wd)\\b", r"(?i)\bpass(?:word|phrase|wd)\b[^\n\"'`:=]{0,24}?(?::|=|\bis\b)\s{0,3}(?:\"((?:[^\s\"]{1,20} ){1,7}[^\s\"]{1,20})\"|'((?:[^\s']{1,20} ){1,7}[^\s']{1,20})'|`((?:[^\s`]{1,20} ){1,7}[^\s`]{1,20})`)", "mixed"),
    _given("basic-login", "(?i)basic\\sauth", r"(?i)\bbasic auth\w{0,12}\s{0,2}[:=]\s{1,3}([A-Za-z0-9+/]{8,}={0,2})"),
    _given("last-column", "(?i)[,;\\t]\\s?(?:pass\\w{0,6}|secret|token|api_?key)\\r?\\n",
           r"(?i)[,;\t]\s?(?:pass(?:word|wd|phrase)?|secret|token|api_?key)\r?\n(?:[^\n,;\t]{0,80}[,;\t]){1,8}\s?([^\s,;]{4,})(?:\s|$)"),
)  # fmt: skip

_COMMAND = r"[^\n|;&]{0,200}?\s"
COMMANDS = (
    _given("tool-password", "ssh-keygen vault\\s \\bu?n?zip\\s \\b7z \\brar\\s openssl\\senc snmp mosquitto_ ncftp lftp \\bnet\\suse freerdp rdesktop \\baz\\slogin \\bgh\\ssecret kubeadm keytool jarsigner nmcli crackmapexec \\bnxc\\s evil-winrm ipmitool",
           r"(?:\bvault\s{1,3}login\s{1,3}(?:-[a-z-]{1,20}(?:=\S{1,40})?\s{1,3}){0,3}|\bvault\s[^\n|;&]{0,120}?\s(?:password|token|secret\w{0,10})=|\b(?:zip|unzip|zipcloak)\b[^\n|;&]{0,60}?\s-P\s{0,3}|\b(?:7za?|7zz|rar|unrar)\b[^\n|;&]{0,80}?\s-(?:p|hp)|"
           rf"\bopenssl\s{{1,3}}enc\b{_COMMAND}-(?:k|K|pass pass:)\s{{0,3}}|\bsnmp\w{{2,12}}\b{_COMMAND}-(?:A|c)\s{{1,3}}|\bmosquitto_(?:pub|sub|rr)\b{_COMMAND}-P\s{{1,3}}|"
           rf"\b(?:ncftp\w{{0,4}}|ncftpput)\b{_COMMAND}-p\s{{0,3}}|\blftp\b{_COMMAND}-u\s{{1,3}}[^\s,]{{1,64}},|\bnet\s{{1,3}}user\s{{1,3}}[^\s/]{{1,64}}\s{{1,3}}|\bnet\s{{1,3}}use\s{{1,3}}\S{{1,120}}\s{{1,3}}(?:/user:\S{{1,64}}\s{{1,3}})?|\b(?:xfreerdp|rdesktop|wlfreerdp)\d?\b{_COMMAND}(?:/p:|-p\s{{1,3}})|"
           rf"\baz\s{{1,3}}login\b{_COMMAND}-p\s{{1,3}}|\bgh\s{{1,3}}secret\s{{1,3}}set\b{_COMMAND}(?:--body|-b)[ =]\s{{0,3}}|\bkubeadm\s{{1,3}}join\b{_COMMAND}--token\s{{1,3}}|\bssh-keygen\b{_COMMAND}-N\s{{1,3}}|\b(?:keytool|jarsigner)\b{_COMMAND}-(?:store|key)pass\s{{1,3}}|\bnmcli\b{_COMMAND}password\s{{1,3}}|"
           rf"\b(?:crackmapexec|nxc|evil-winrm|ncat|ipmitool)\b{_COMMAND}-(?:p|P)\s{{1,3}})[\"']?([^\s\"'|;&<>$/-][^\s\"'|;&<>]{{3,}})", "option"),
    _given("snmp-privacy", "snmp", rf"\bsnmp\w{{2,12}}\b{_COMMAND}-X\s{{1,3}}[\"']?([^\s\"'|;&<>$-][^\s\"'|;&<>]{{3,}})", "option"),
)  # fmt: skip

HEADERS = (
    SecretFamily("cookie", "https://www.rfc-editor.org/rfc/rfc6265", ("(?i)cookie",),
           r"(?i)\b(?:set-)?cookies?[\"']?\s{0,3}[:=]\s{0,3}[\"']?([A-Za-z0-9_.!#$%&*+^|~-]{1,64}=[^\s;,\"']*(?:;\s{0,2}[A-Za-z0-9_.!#$%&*+^|~-]{1,64}=[^\s;,\"']*)*)", "cookie"),
    SecretFamily("session-cookie", "https://www.rfc-editor.org/rfc/rfc6265", ("(?i)sess[a-z_-]{0,8}=", "(?i)sid=", "(?i)remember_", "(?i)auth[_-]?cookie"),
           r"(?i)(?:^|[\s;\"'&?,(])(?:phpsessid|jsessionid|asp\.net_sessionid|\.aspxauth|connect\.sid|[a-z_-]{0,20}sess(?:ion)?(?:[_-]?id)?|[a-z_-]{0,20}sid|remember[_-](?:user[_-])?(?:me|token)|auth[_-]?cookie)=([A-Za-z0-9%._~+/=-]{12,})", "random"),
    SecretFamily("authorization", "https://www.rfc-editor.org/rfc/rfc9110#name-authorization", ("(?i)authorization",),
           r"(?i)authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:bearer|basic|token|apikey|key|negotiate|digest\s[^\n]{0,400}?response=\"?|hmac|aws4-hmac-sha256\s[^\n]{0,400}?signature=)\s{0,3}([A-Za-z0-9+/=._~|:-]{8,})", "literal"),
    SecretFamily("otp-secret", "https://github.com/google/google-authenticator/wiki/Key-Uri-Format", ("otpauth",), r"otpauth://[^\s\"']{1,200}?secret=([A-Za-z2-7]{8,})"),
    SecretFamily("swarm-token", "https://docs.docker.com/engine/swarm/swarm-mode/", ("SWMTKN-",), r"(SWMTKN-[0-9]-[a-z0-9]{40,60}-[a-z0-9]{20,30})"),
    SecretFamily("bitcoin-key", "https://en.bitcoin.it/wiki/Wallet_import_format", ("(?i)wif", "(?i)bitcoin", "(?i)btc", "(?i)wallet", "(?i)priv"), r"(?:^|[^A-Za-z0-9+/=_-])([5KL][1-9A-HJ-NP-Za-km-z]{50,51})(?:[^A-Za-z0-9+/=_-]|$)", "random"),
    SecretFamily("key-file", _WEAKNESS, (r"\.key\s{0,2}\n", r"(?i)(?:secrets?|token|_pass|password|api[_-]?key)(?:\.txt)?\s{0,2}\n"),
           r"(?i)(?:[\w/.~-]{0,80}(?:\.key|[._-]secrets?(?:\.txt)?|[._-]?token(?:\.txt)?|api[_-]?key(?:\.txt)?|\.?vault[_-]pass(?:word)?(?:\.txt)?|password(?:\.txt)?))\s{0,2}\n\s{0,4}(?:[0-9]{1,5}(?:→|\t|[:|] ?)\s{0,8})?([A-Za-z0-9+/=_.!@#$%^&*~-]{12,})(?:[\s\"'`]|$)", "random"),
)  # fmt: skip

# What people say of passwords, in many languages. In scripts of their own the word and a value are enough.
_LATIN = (
    r"(?i:passw(?:or)?ds?|passphrase|passcode|passwort|kennwort|pw|mots? de passe|mdp|contrase(?:ñ|Ñ|n)a|clave|senha|palavra-passe|"
    r"parola(?: d'ordine| chiave)?|wachtwoord|l(?:ö|o)senord(?:et)?|adgangskode(?:n)?|passord(?:et)?|salasana|has(?:ł|l)o|heslo|jelsz(?:ó|o)|"
    r"(?:ş|s)ifre(?:si|miz|m)?|parol(?:a|u|i)?|lozinka|slapta(?:ž|z)odis|m(?:ậ|a)t kh(?:ẩ|a)u|kata sandi|contrasenya|geslo|parool|pasvorto)"
)
_SCRIPTS = (
    (
        r"(?:パスワード|暗証番号|パスフレーズ|合言葉|密码|密碼|口令|비밀번호|암호|패스워드|[\xd0\xd1]?пароль|Пароль|ПАРОЛЬ|парол[а-я]?|Парола|парола|Парол|كلمة المرور|كلمة السر|الرقم السري|"
        r"رمز عبور|गुप्त शब्द|पासवर्ड|סיסמה|סיסמא|הסיסמה|הסיסמא|รหัสผ่าน|κωδικός|Κωδικός|συνθηματικό|գաղտնաբառ|პაროლი|পাসওয়ার্ড|கடவுச்சொல்|رمز)"
    )
    .replace(r"[\xd0\xd1]?", "")
    .replace("[а-я]?", "(?:ем|я|ь|ю|і|и)?")
)
_COPULA = r"(?:\b(?:is|was|are|ist|war|lautet|est|sera|es|era|to|é|è|e'|is nu|är|er|on|jest|brzmi|je|to jest|ez|olarak|dir|là|adalah|és|yra)\b|é|è|är|là|és)"
_SPOKEN_VALUE = (
    r"(?:[\"'`(]|“|«|„|「|『){0,2}([!#-&*+./0-9:;=?@A-Z^_a-z~-]{5,}[!#-&*+/0-9=@A-Z^_a-z~-]|[A-Za-z0-9!#-&*+_-]{6,})"
)
_SIGNED_VALUE = r"(?:[\"'`(]|“|«|„){0,2}([!#-&*+./0-9:=?@A-Z^_a-z~-]{2,40}[0-9!#$%^&*][!#-&*+./0-9:=?@A-Z^_a-z~-]{0,40}[!#-&*+/0-9=@A-Z^_a-z~-])"
TOLD = (
    SecretFamily("told-password", _HARD_CODED,
           tuple("パスワード 暗証番号 パスフレーズ 合言葉 密码 密碼 口令 비밀번호 암호 패스워드 арол كلمة رمز الرقم पासवर्ड गुप्त סיסמ รหัสผ่าน δικ συνθη գաղտ პაროლი পাসওয়ার্ড கடவுச்சொல்".split()),
           rf"{_SCRIPTS}[^\n!-~]{{0,60}}(?:[A-Za-z][A-Za-z0-9_.@-]{{0,30}}[:=]? )?(?:[ :=/-][^\n!-~]{{0,60}}){{0,4}}{_SPOKEN_VALUE}", "spoken"),
    SecretFamily("said-password", _HARD_CODED,
           tuple("(?i)pass (?i)parol (?i)clave (?i)senha (?i)palavra (?i)wachtwoord (?i)senord (?i)adgangskode (?i)salasana (?i)haslo hasł (?i)heslo (?i)jelsz (?i)ifre (?i)lozinka (?i)slapta (?i)sandi (?i)contrase (?i)geslo (?i)kennwort (?i)mdp kh".split()),
           # one with a digit or a sign behind a verb, however far, before any word that comes next
           rf"{_LATIN}(?:\s[^\n\"'`:=]{{0,60}}?\s(?:{_COPULA}|na|em|auf)[:=]?\s{{1,2}}{_SIGNED_VALUE}"
           rf"|(?:\s[^\n\"'`:=]{{0,40}}?)?(?:\s{{0,2}}(?:[:=]|：|→|->|–|—)\s{{0,3}}|\s{_COPULA}[:=]?\s{{1,2}}|\s){_SPOKEN_VALUE})", "said"),
    SecretFamily("told-secret", _WEAKNESS, ("(?i)tokens?\\s", "(?i)keys?[\\s:]", "(?i)secrets?[\\s:]", "(?i)credentials?[\\s:]", "トークン", "令牌", "密钥", "токен", "ключ"),
           rf"(?:(?i:\b(?:api|access|secret|auth|bearer|private|signing|license|licence|encryption|ssh|deploy|refresh|session|bot|webhook|service|app|client|the|my|our|your|its|this|new|old|prod|staging|master|root)[ -]?(?:api )?(?:access )?(?:tokens?|keys?|secrets?|credentials?)\b[^\n\"'`:=]{{0,40}}?(?:\bis\b|\bare\b|:|=)\s{{1,3}})|(?:トークン|令牌|密钥|токен|ключ|clé|clave|Schlüssel|jeton)[^\n!-~]{{0,40}}(?:[ :=-][^\n!-~]{{0,20}}){{0,3}}){_SPOKEN_VALUE}", "mixed"),
    SecretFamily("told-login", _HARD_CODED, ("(?i)creds?\\s", "(?i)credentials?[\\s:]", "(?i)logins?:", "(?i)login\\s", "(?i)log in", "(?i)account[\\s:]", "(?i)sign in", "(?i)zugang", "(?i)identifiants"),
           rf"(?i)\b(?:creds?|credentials?|logins?|log in|sign in|account|zugang\w{{0,8}}|identifiants)\b[^\n/]{{0,40}}?(?:\bis\b|\bare\b|\bas\b|\bwith\b|:|=)\s{{1,3}}[A-Za-z0-9_.@+-]{{1,64}}\s{{0,2}}(?:/|,|:|\||\band\b|\bwith\b)\s{{0,2}}{_SPOKEN_VALUE}", "mixed"),
    SecretFamily("told-pin", _HARD_CODED, (r"(?i)\bpin\b", r"(?i)\bcodes?\b", r"(?i)\botp\b"),
           r"(?i)(?:\b(?:pin|passcode|unlock code|door code|2fa code|otp)(?: code| number)?\s{0,2}(?:for [^\n]{1,30}? )?(?:is|:)\s{1,3}|\b(?:backup|recovery|scratch|rescue)[ -]codes?\s{0,2}(?:is|are|:)\s{1,3})[\"'`]?([A-Za-z0-9]{0,8}[0-9][0-9A-Za-z-]{3,40}(?:[\s,]{1,3}[0-9A-Za-z]{4,6}-[0-9A-Za-z]{4,6}){0,15})", "given"),
    SecretFamily("seed-phrase", "https://github.com/bitcoin/bips/blob/master/bip-0039.mediawiki", (r"(?i)\bseed\b", "(?i)mnemonic", "(?i)recovery phrase", "(?i)wallet words", "(?i)passphrase", "(?i)password (?i:is|:)"),
           r"(?i)(?:\b(?:seed(?: phrase| words)?|mnemonic(?: phrase)?|recovery phrase|wallet words)\b[^\n:=]{0,24}?(?::|=|\bis\b)\s{1,3}[\"'`]?((?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})|\bpass(?:phrase|word)\b[^\n:=]{0,24}?(?::|=|\bis\b)\s{1,3}(?:[\"'`]((?:[A-Za-z0-9]{3,12} ){3,9}[A-Za-z0-9]{1,12})[\"'`])|\bpassphrase\b[^\n:=]{0,24}?(?::|=|\bis\b)\s{1,3}((?:[a-z]{3,12} ){3,9}[0-9]{1,6})\b)"),
    SecretFamily("table-password", _HARD_CODED, (r"(?i)\|\s{0,20}(?:pass\w{0,6}|secret|token|api[_ ]?key)\s{0,20}\|?\s{0,4}\n",),
           r"(?im)^\s{0,4}\|?[^\n|]{0,60}(?:\|[^\n|]{0,60}){0,6}\|\s{0,20}(?:pass(?:word|wd|phrase)?|secret|token|api[_ ]?key)\s{0,20}\|?\s{0,4}\n[ |:-]{3,200}\n(?:\|?[^\n|]{0,80}\|){1,8}?\s{0,20}([^\s|]{4,})\s{0,20}\|?\s{0,4}$", "literal"),
)  # fmt: skip
