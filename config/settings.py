"""Settings, read from the environment, with embedded defaults so that a clone runs with nothing set.

`docs/reference/configuration.md` lists every variable. Secrets come from the environment or from files under KEYS_DIR
that `manage.py create_keys` makes; nothing here makes one.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.templatetags.static import static

from config import environment as env
from config.logs import LOGGING as LOGGING

BASE_DIR = Path(__file__).resolve().parent.parent

VAR_DIR = Path(env.text("VAR_DIR", str(BASE_DIR / "var")))
KEYS_DIR = Path(env.text("KEYS_DIR", str(VAR_DIR / "keys")))
DATA_DIR = VAR_DIR / "data"
# Folders under which memory files may lie, wherever the service is started from.
VAULT_ROOTS = [str(Path(root).absolute()) for root in env.listed("VAULT_ROOTS", [str(VAR_DIR / "vault")])]

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
    "config",  # before django.contrib.auth, whose command createsuperuser it replaces
    "unfold.apps.BasicAppConfig",
    "config.apps.AdminConfig",
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "django.contrib.staticfiles",
    "django_otp",
    "axes",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "drf_standardized_errors",
    "django_q",
    "audit",
    "memory",
    "refinement",
]
MIDDLEWARE = [
    "refinement.monitoring.metrics.counted",
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES: dict[str, dict[str, Any]] = {"default": env.database("DATABASE_URL", DATA_DIR / "palimpsest.sqlite3")}
DATABASES["default"]["ATOMIC_REQUESTS"] = False  # transactions belong to the write path
DATABASES["default"]["CONN_MAX_AGE"] = env.whole("CONN_MAX_AGE", 60)
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["ENGINE"] = "config.sqlite3"  # Django's own, but that writers wait evenly
    DATABASES["default"]["OPTIONS"] = {
        # Without IMMEDIATE two writers that both read first fail with "database is locked".
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA recursive_triggers=ON;"
        "PRAGMA secure_delete=ON;",
    }
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    _PREPARED = env.switch("PREPARED_STATEMENTS", default=True)
    # A pooler by transactions gives the next statement another connection, which knows no cursor of this one.
    DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = not _PREPARED
    # Parameters bound by the server allow statements that are prepared.
    DATABASES["default"].setdefault("OPTIONS", {}).update(
        server_side_binding=True, prepare_threshold=5 if _PREPARED else None
    )

REDIS_URL = env.redis("REDIS_URL")
CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}

# People, who sign in to the admin
AUTH_USER_MODEL = "memory.Person"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL, LOGIN_REDIRECT_URL = "admin:login", "admin:index"
SESSION_ENGINE = "config.sessions"
SESSION_COOKIE_AGE = 12 * 3_600
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "palimpsest_session", "palimpsest_csrf"
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Strict"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]  # by the name alone, anybody could keep its owner out
AXES_USERNAME_FORM_FIELD = "username"
AXES_USERNAME_CALLABLE = "memory.admin.plain_pages.accounts.typed_address"
AXES_CLIENT_IP_CALLABLE = "memory.admin.plain_pages.accounts.client_address"
AXES_SENSITIVE_PARAMETERS = ["username", "password", "code"]
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = AXES_VERBOSE = False
AXES_ENABLE_ADMIN = False
AXES_LOCKOUT_CALLABLE = "memory.admin.plain_pages.accounts.locked_out"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = "config.formats"
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True  # where they lie: nothing has to be collected
WHITENOISE_AUTOREFRESH = WHITENOISE_ALLOW_ALL_ORIGINS = False

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"  # with "no-referrer" browsers post our forms from the origin "null"
X_FRAME_OPTIONS = "DENY"
# Unfold's Alpine evaluates expressions: 'unsafe-eval'. No page of Unfold's shows what a memory says.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, UNSAFE_EVAL],
        "style-src": [SELF, UNSAFE_INLINE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
# Behind a TLS proxy these are set to true (docs/reference/configuration.md); a laptop without TLS keeps working.
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
# Of a tenant's sessions in one calendar month (UTC), unless the tenant has a number of its own; none: any number.
MONTH_TOKENS: int | None = env.whole("MONTH_TOKENS", 0) or None
# Sessions that workers run at the same time: of one tenant, unless it has a number of its own; by provider. 0: any.
TENANT_SESSIONS = env.whole("TENANT_SESSIONS", 0)
PROVIDER_SESSIONS = env.numbers("PROVIDER_SESSIONS", {"openai": 0, "anthropic": 0, "ollama": 2, "builtin": 0})

# The queue: in the database, or in Redis where there is one. Its tasks are in refinement/tasks.py and memory/tasks.py.
QUEUE_WORKERS = env.whole("QUEUE_WORKERS", 2)
TASK_SECONDS = env.whole("TASK_SECONDS", 1_800)  # one task may take; more than the longest session
SWEEP_MINUTES = env.whole("SWEEP_MINUTES", 10)
SWEEP_AGENTS = env.whole("SWEEP_AGENTS", 1_000)  # that wait at the same time at most, the longest overdue first
Q_CLUSTER: dict[str, Any] = {
    "name": "palimpsest",
    "workers": QUEUE_WORKERS,
    "queue_limit": QUEUE_WORKERS,
    "timeout": TASK_SECONDS,
    # What a worker took and has not answered for is given out again. It may first have waited for two others' end.
    "retry": 3 * TASK_SECONDS + 60,
    "max_attempts": 3,
    "ack_failures": True,
    "catch_up": False,  # what was missed while no worker ran is run once
    "save_limit": -1,  # results are codes, and logged: nothing is kept, nor read back out of a pickle
    "poll": 1,
    "guard_cycle": 1,
    **({"redis": env.with_timeouts(REDIS_URL)} if REDIS_URL else {"orm": "default"}),
}

# The admin's looks, in the colours of palimpsest/plain.css: the theme's own are too faint on a dark ground.
_PRIMARY = {
    "50": "#f7f4fb",
    "100": "#ede6f6",
    "200": "#dccfee",
    "300": "#cdb8ec",
    "400": "#c4a8f0",
    "500": "#b294e6",
    "600": "#6a45a0",
    "700": "#5b3a8c",
    "800": "#472c70",
    "900": "#362257",
    "950": "#22143a",
}
UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Palimpsest",
    "SITE_HEADER": "Palimpsest",
    "SITE_SYMBOL": "history_edu",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda _: static("palimpsest/icon.svg")}],
    "COLORS": {"primary": _PRIMARY},
    "STYLES": [lambda _: static("palimpsest/admin.css")],
    "SITE_URL": None,
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "ACCOUNT": {"navigation": [{"title": "Your account", "link": "/admin/account/"}]},
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": "memory.admin.base.navigation.sections",
    },
}

# Serving
PUBLIC_URL = env.text("PUBLIC_URL", "http://127.0.0.1:8000").rstrip("/")  # where people reach it: links in mail
WEB_WORKERS = env.whole("WEB_WORKERS", 2)
WEB_THREADS = env.whole("WEB_THREADS", 32)  # of each of them
WORKER_NICE = env.whole("WORKER_NICE", 10)  # how far processes that refine yield to others of their machine
STOP_SECONDS = env.whole("STOP_SECONDS", 30)  # that what is under way has to end by itself
METRICS_TOKEN = env.text("METRICS_TOKEN")  # who shows it may read /metrics; without it there is no such address

# Mail
globals().update(env.email("EMAIL_URL"))
EMAIL_TIMEOUT = 30
# Requests and proposals within 24 hours, each of them a letter to a steward: of one person or program, about one agent.
ASKS_PER_PERSON = env.whole("ASKS_PER_PERSON", 10)
ASKS_PER_AGENT = env.whole("ASKS_PER_AGENT", 20)
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "palimpsest@localhost")

# Search: megabytes of opened indexes one process may hold, least recently used dropped first.
SEARCH_CACHE_MB = env.whole("SEARCH_CACHE_MB", 512)

# The API
API_BODY_BYTES = env.whole("API_BODY_BYTES", 8_000_000)  # of a JSON body
API_IMPORT_BYTES = env.whole("API_IMPORT_BYTES", 256 * 2**20)  # of an import's, held in memory until all of it is here
API_RATE = env.whole("API_RATE", 1_200)  # requests a minute and key
CONTEXT_JOURNAL_DAYS = env.whole("CONTEXT_JOURNAL_DAYS", 7)
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],  # for nobody, but for subclasses of View (memory/api/base/views.py)
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["memory.api.base.bodies.StrictJSON"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "memory.api.base.schema.Schema",
    "EXCEPTION_HANDLER": "drf_standardized_errors.handler.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,  # `format` is for the addresses themselves
    "UNICODE_JSON": True,
}
DRF_STANDARDIZED_ERRORS = {
    "EXCEPTION_HANDLER_CLASS": "memory.api.base.errors.Handler",
    "EXCEPTION_FORMATTER_CLASS": "memory.api.base.errors.Formatter",
    "ENABLE_IN_DEBUG_FOR_UNHANDLED_EXCEPTIONS": True,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Palimpsest API",
    "DESCRIPTION": "Long-term memory for AI agents, which they refine themselves.",
    "VERSION": "v1",
    "SORT_OPERATIONS": False,  # the order of the URL patterns
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "memory.api.base.schema.add_tags",
    ],
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {  # of fields that share a name, or a set of values
        "AccessStateEnum": "audit.models.AccessState.values",
        "ProposalStateEnum": "audit.proposals.ProposalState.values",
        "RemovalStateEnum": "audit.removals.RemovalState.values",
        "MemoryStateEnum": ["active", "discarded"],
        "AskerKindEnum": ["person", "operator"],
        "MemoryKindEnum": "memory.models.Kind.values",
        "RecordingKindEnum": "memory.recording.interactions.KINDS",
        "DifferenceKindEnum": "memory.vault.comparing.KINDS",
        "LevelEnum": "memory.recording.interactions.LEVELS",
    },
}
