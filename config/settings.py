"""Settings, read from the environment, with embedded defaults so that a clone runs with nothing set.

`docs/configuration.md` lists every variable. Secrets come from the environment or from files under KEYS_DIR
that `manage.py create_keys` makes; nothing here makes one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from config import environment as env
from config.logs import LOGGING as LOGGING

BASE_DIR = Path(__file__).resolve().parent.parent

VAR_DIR = Path(env.text("VAR_DIR", str(BASE_DIR / "var")))
KEYS_DIR = Path(env.text("KEYS_DIR", str(VAR_DIR / "keys")))
DATA_DIR = VAR_DIR / "data"

DEBUG = env.switch("DEBUG", default=False)
SECRET_KEY = env.secret_key("SECRET_KEY", KEYS_DIR)
ALLOWED_HOSTS = env.listed("ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.listed("CSRF_TRUSTED_ORIGINS", [])

# Key material: comma-separated base64, newest first; empty means the file of that name in KEYS_DIR.
SILO_KEYS = env.text("SILO_KEYS")
AUDIT_KEY = env.text("AUDIT_KEY")
PEPPER_KEY = env.text("PEPPER_KEY")
HEADS_KEY = env.text("HEADS_KEY")

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "config",
    "audit",
    "memory",
    "refinement",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
    }
]

DATABASES: dict[str, dict[str, Any]] = {"default": env.database("DATABASE_URL", DATA_DIR / "palimpsest.sqlite3")}
DATABASES["default"]["ATOMIC_REQUESTS"] = False  # transactions belong to the write path
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["OPTIONS"] = {
        # Without IMMEDIATE two writers that both read first fail with "database is locked".
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA recursive_triggers=ON;"
        "PRAGMA secure_delete=ON;",
    }
else:
    DATABASES["default"]["CONN_MAX_AGE"] = env.whole("CONN_MAX_AGE", 60)
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    # Parameters bound by the server allow statements that are prepared, and several sent together (audit/rowset.py).
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        server_side_binding=True, prepare_threshold=5 if env.switch("PREPARED_STATEMENTS", default=True) else None
    )

REDIS_URL = env.redis("REDIS_URL")
CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
STATIC_URL = "static/"
STATIC_ROOT = VAR_DIR / "static"

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "no-referrer"
X_FRAME_OPTIONS = "DENY"
# Behind a TLS proxy these are set to true (docs/configuration.md); a laptop without TLS keeps working.
SECURE_SSL_REDIRECT = env.switch("SECURE_SSL_REDIRECT", default=False)
SECURE_HSTS_SECONDS = env.whole("SECURE_HSTS_SECONDS", 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE_HSTS_SECONDS > 0
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.switch("SECURE_COOKIES", default=SECURE_SSL_REDIRECT)
if env.switch("BEHIND_TLS_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# Tokens
TOKEN_COUNTER = env.text("TOKEN_COUNTER", "heuristic")

# Models
OPENAI_API_KEY = env.text("OPENAI_API_KEY")
OPENAI_BASE_URL = env.text("OPENAI_BASE_URL", "https://api.openai.com/v1")
ANTHROPIC_API_KEY = env.text("ANTHROPIC_API_KEY")
ANTHROPIC_BASE_URL = env.text("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
OLLAMA_BASE_URL = env.text("OLLAMA_BASE_URL", "http://127.0.0.1:11434")

# Refinement
# Longest silence of a session's driver, in seconds, before the session counts as abandoned. A model call
# (retries included) is bounded well below it, so a live worker always renews in time.
LEASE_SECONDS = env.whole("LEASE_SECONDS", 600)
MODEL_CALL_SECONDS = env.whole("MODEL_CALL_SECONDS", 300)
BATCH_TOKENS = env.whole("BATCH_TOKENS", 24_000)

# Search: megabytes of opened indexes one process may hold, least recently used dropped first.
SEARCH_CACHE_MB = env.whole("SEARCH_CACHE_MB", 512)
