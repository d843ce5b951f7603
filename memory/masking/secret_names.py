"""What secrets are called, in lower case, in the words of many languages."""

from __future__ import annotations

# What is a password in itself. In these languages words have blanks between them ...
SPACED = (
    r"pass(?:w(?:or)?d|[ _-]?phrase|-word|wort|wörter|code|ord(?![a-z]))|kennwort|zugangscode|contrase(?:ñ|n\u0303|n)a|"
    r"mot de passe|mdp(?![a-z])(?<![a-z]mdp)|senha|palavra-passe|wachtwoord|adgangskode|kodeord|lösenord|losenord|"
    r"salasana|has(?:ł|l)(?:o|a|em)(?![a-z])(?<![a-z]has.o)|heslo|jelsz(?:ó|o)|parola(?![a-z])|şifre(?![a-z])|"
    r"sifre(?![a-z])|lozinka|slaptažodis|parool(?![a-z])|парол[а-яёії]{0,3}|лозинк[а-я]{0,2}|κωδικ[όο]ς πρόσβασης|"
    r"συνθηματικό|kata sandi|mật khẩu|seed phrase|recovery phrase|mnemonic(?: phrase)?|"
    r"dbpass(?![a-z])|userpass(?![a-z])|adminpass(?![a-z])|rootpass(?![a-z])|smtppass(?![a-z])|psk(?![a-z])(?<![a-z]psk)|"
    r"p/w(?!\w)|pwd?(?![a-z])(?<![a-z]pw)(?<![a-z]pwd)|_pass(?![a-z])"
)
# ... and in these there are none.
UNSPACED = (
    r"密码|密碼|口令|パスワード|暗証番号|비밀번호|패스워드|암호|รหัสผ่าน|"
    r"كلمة المرور|كلمة السر|رمز عبور|סיסמה|סיסמא|पासवर्ड"
)
STRONG = f"{SPACED}|{UNSPACED}"
# What is a secret if its value looks like one.
_CODES = (
    *("door", "gate", "entry", "alarm", "access", "security", "backup", "recovery", "login", "unlock", "verification"),
    *("2fa", "mfa", "sms", "one-time", "authentication"),
)
WEAK = (
    r"api[ _.-]?key|access[ _-]?key(?:[ _-]?id)?|secret[ _-]?(?:access[ _-]?)?key(?:[_-]base(?![a-z]))?|"
    r"auth[ _-]?key|private[ _-]?key|"
    r"client[ _-]?secret|account[ _-]?key|encryption[ _-]?key|signing[ _-]?key|master[ _-]?key|shared[ _-]?key|"
    r"session[ _-]?key|storage[ _-]?key|webhook[ _-]?secret|wifi[ _-]?key|wpa[ _-]?key|license[ _-]?key|"
    r"_auth(?![a-z])|x-auth(?![a-z-])|pass(?==)(?<![a-z]pass)|secret|token(?<!tiktoken)|credential|zugangsdaten|clave(?![a-z])|clé(?![a-z])|chave(?![a-z])|"
    r"pin(?![a-z])(?<![a-z0-9]pin)(?: code)?|otp(?![a-z])(?<![a-z]otp)|"
    + "|".join(f"{what}[ _-]code" for what in _CODES)
)
# One of these stands in each.
SIGNS = (
    *("pass", "kennwort", "zugangs", "contrase", "mdp", "senha", "wachtwoord", "adgangskode", "kodeord", "lösenord"),
    *(
        "losenord",
        "salasana",
        "hasł",
        "hasl",
        "heslo",
        "jelsz",
        "parol",
        "ifre",
        "lozinka",
        "slaptažodis",
        "парол",
        "лозинк",
    ),
    *("κωδικ", "συνθηματικό", "kata sandi", "mật khẩu", "phrase", "mnemonic", "pw", "p/w", "psk", *UNSPACED.split("|")),
    *("key", "secret", "token", "credential", "clave", "clé", "chave", "pin", "otp", "code", "_auth", "x-auth"),
)
