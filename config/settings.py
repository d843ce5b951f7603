"""The settings of the service. They come from environment variables. The defaults work without any configuration.

`docs/reference/configuration.md` lists every variable. Secrets come from the environment, or from files in KEYS_DIR
that `manage.py create_keys` creates.
"""

import os
import resource
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from csp.constants import NONE, SELF, UNSAFE_INLINE
from django.templatetags.static import static

from config import IN_CHECKOUT, __version__
from config import environment as env
from config.logs import LOGGING as LOGGING

os.umask(0o077)  # new files have the mode 0600, new folders 0700
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump contains keys and memories
sys.set_int_max_str_digits(640)  # no other thread runs while Python converts an integer: 4,300 digits take long

BASE_DIR = Path(__file__).resolve().parent.parent
TEMPLATES_DIR = BASE_DIR / "templates" if IN_CHECKOUT else BASE_DIR / "config" / "templates"

VAR_DIR = env.folder("VAR_DIR", env.data_folder())
KEYS_DIR = env.folder("KEYS_DIR", VAR_DIR / "keys")
DATA_DIR = VAR_DIR / "data"
# Folders for memory files and vaults. Absolute, so that they do not depend on the current folder.
VAULT_ROOTS = [str(Path(root).absolute()) for root in env.listed("VAULT_ROOTS", [str(VAR_DIR / "vault")])]

DEBUG = env.switch("DEBUG", default=False)
SECRET_KEY = env.secret_key("SECRET_KEY", KEYS_DIR)
ALLOWED_HOSTS = env.listed("ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.listed("CSRF_TRUSTED_ORIGINS", [])

# Keys: base64, separated by commas, newest first. If a variable is empty, its key file in KEYS_DIR is used.
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
    "config.request_metrics.counted",
    "csp.middleware.CSPMiddleware",  # before those that refuse a host name, for the error page
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django_otp.middleware.OTPMiddleware",
    "config.at_once.persons_limited",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]
ROOT_URLCONF = "config.urls"
FILE_UPLOAD_HANDLERS = ["config.uploads.NoFiles"]
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [TEMPLATES_DIR],
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
DATABASES["default"]["CONN_MAX_AGE"] = env.whole("CONN_MAX_AGE", 60)
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["ENGINE"] = "config.sqlite3"  # Django's backend, with fair waiting for writers
    DATABASES["default"]["OPTIONS"] = {
        # Without IMMEDIATE, two transactions that read before they write fail with "database is locked".
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA recursive_triggers=ON;"
        "PRAGMA secure_delete=ON;",
    }
else:
    from psycopg import IsolationLevel

    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    _PREPARED = env.switch("PREPARED_STATEMENTS", default=True)
    # A transaction pooler may use another connection for the next statement, where the cursor does not exist.
    DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = not _PREPARED
    # Prepared statements need parameters that the server binds. Each transaction names its isolation level, because SQL
    # can change the default: then a check under a lock would see old rows.
    more = {"server_side_binding": True, "prepare_threshold": 5 if _PREPARED else None}
    DATABASES["default"].setdefault("OPTIONS", {}).update(more, isolation_level=IsolationLevel.READ_COMMITTED)

REDIS_URL = env.redis("REDIS_URL")
_CACHE, _PLACE = ("redis.RedisCache", env.with_timeouts(REDIS_URL, 1, 1)) if REDIS_URL else ("locmem.LocMemCache", "")
CACHES = {"default": {"BACKEND": f"django.core.cache.backends.{_CACHE}", "LOCATION": _PLACE}}
# This cache is in the process, so it also works while Redis does not answer.
CACHES["local"] = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "local"}

# People who sign in to the admin
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
CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Strict"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = "memory.admin.plain_pages.accounts.counted_by"
AXES_USERNAME_FORM_FIELD = "username"
AXES_USERNAME_CALLABLE = "memory.admin.plain_pages.accounts.typed_address"
AXES_CLIENT_IP_CALLABLE = "config.at_once.client_address"
# `next` can contain the token of an invitation.
AXES_SENSITIVE_PARAMETERS = ["username", "password", "code", "csrfmiddlewaretoken", "next"]
AXES_RESET_ON_SUCCESS = True
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = AXES_VERBOSE = False
AXES_ENABLE_ADMIN = False
AXES_LOCKOUT_CALLABLE = "memory.admin.plain_pages.accounts.locked_out"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
FORMAT_MODULE_PATH = "config.formats"
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True  # serves files from the apps, without collectstatic
WHITENOISE_AUTOREFRESH = WHITENOISE_ALLOW_ALL_ORIGINS = False

STRICT_POLICY = {  # of pages without Unfold's theme (config/plain.py)
    "default-src": [NONE],
    "script-src": [SELF],
    "style-src": [SELF],
    "img-src": [SELF],
    "form-action": [SELF],
    "base-uri": [NONE],
    "frame-ancestors": [NONE],
}
# No page with Unfold's theme shows the content of memories.
_FOR_UNFOLD = {"script-src": [SELF], "style-src": [SELF, UNSAFE_INLINE], "img-src": [SELF, "data:"]}
CONTENT_SECURITY_POLICY = {"DIRECTIVES": STRICT_POLICY | _FOR_UNFOLD | {"font-src": [SELF], "connect-src": [SELF]}}
# Set these to true behind a TLS proxy (docs/reference/configuration.md). The defaults work without TLS.
SECURE_SSL_REDIRECT = env.switch("SECURE_SSL_REDIRECT", default=False)
SECURE_REDIRECT_EXEMPT = ["^(healthz|readyz)$"]  # health checks do not pass the proxy
SECURE_HSTS_SECONDS = env.whole("SECURE_HSTS_SECONDS", 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE_HSTS_SECONDS > 0
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.switch("SECURE_COOKIES", default=SECURE_SSL_REDIRECT)
if env.switch("BEHIND_TLS_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# Tokens
TOKEN_COUNTER = env.text("TOKEN_COUNTER", "heuristic")

# Models
OPENAI_API_KEY = env.text("OPENAI_API_KEY")
OPENAI_BASE_URL = env.url("OPENAI_BASE_URL", "https://api.openai.com/v1")
ANTHROPIC_API_KEY = env.text("ANTHROPIC_API_KEY")
ANTHROPIC_BASE_URL = env.url("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
OLLAMA_BASE_URL = env.url("OLLAMA_BASE_URL", "http://127.0.0.1:11434")
# For search by meaning: the embedder of agents that have set none (only local/NAME), and the folder of local models.
EMBEDDER = env.text("EMBEDDER")
EMBEDDERS_DIR = env.folder("EMBEDDERS_DIR", VAR_DIR / "embedders")
EMBEDDERS_URL = env.url("EMBEDDERS_URL", "https://huggingface.co")  # from where `embedder install` downloads

# Refinement
# After this many seconds without a renewal a session counts as abandoned. A model call, with its retries, takes less,
# so a live worker always renews its lease in time.
LEASE_SECONDS = env.whole("LEASE_SECONDS", 600)
MODEL_CALL_SECONDS = env.whole("MODEL_CALL_SECONDS", 300)
BATCH_TOKENS = env.whole("BATCH_TOKENS", 24_000)
MAX_OUTPUT_TOKENS = env.whole("MAX_OUTPUT_TOKENS", 8_192)  # of one reply in a session
# Model tokens of a tenant in a calendar month (UTC), if the tenant has no own limit. None: no limit.
MONTH_TOKENS: int | None = env.whole("MONTH_TOKENS", 5_000_000) or None
# The models that agents can use, with the weight of their tokens. Empty: all, with weight 1.
MODELS = env.numbers("MODELS", {}, "openai/gpt-4.1=1,anthropic/*=3")
# The prices of a million tokens of prompts, cached prompts and replies, by model.
MODEL_PRICES = env.prices("MODEL_PRICES")
# Sessions that run at the same time, of a provider. 0: no limit. TENANT_SESSIONS below is the limit of a tenant.
PROVIDER_SESSIONS = env.numbers("PROVIDER_SESSIONS", {"openai": 0, "anthropic": 0, "ollama": 2, "builtin": 0})

# The queue is in Redis if REDIS_URL is set, else in the database. Tasks: refinement/tasks.py and memory/tasks.py.
QUEUE_WORKERS = env.whole("QUEUE_WORKERS", 2)
TENANT_SESSIONS = env.whole("TENANT_SESSIONS", max(1, QUEUE_WORKERS - 1))  # one process stays free for others
TASK_SECONDS = env.whole("TASK_SECONDS", 1_800)  # the time limit of a task, above that of a session
SWEEP_MINUTES = env.whole("SWEEP_MINUTES", 10)
SWEEP_AGENTS = env.whole("SWEEP_AGENTS", 1_000)  # the most agents that wait in the backlog
Q_CLUSTER: dict[str, Any] = {
    "name": "palimpsest",
    "workers": QUEUE_WORKERS,
    "queue_limit": QUEUE_WORKERS,
    "timeout": TASK_SECONDS,
    # After this time, another worker gets an unfinished task. The task may have waited for two other tasks first.
    "retry": 3 * TASK_SECONDS + 60,
    "max_attempts": 3,
    "ack_failures": True,
    "catch_up": False,  # run a missed schedule once
    "save_limit": -1,  # results are logged, not stored
    "poll": 1,
    "guard_cycle": 1,
    **({"redis": env.with_timeouts(REDIS_URL, 3, 3)} if REDIS_URL else {"orm": "default"}),
}

# The admin's colors, as in palimpsest/plain.css. The theme's own colors have too little contrast in dark mode.
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
    "SCRIPTS": [
        lambda _: static("palimpsest/theme.js"),
        lambda _: static("palimpsest/local_time.js"),
        lambda _: static("palimpsest/live.js"),
    ],
    "SITE_URL": None,
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "ACCOUNT": {"navigation": [{"title": "Your account", "link": "/admin/account/"}]},
    "SIDEBAR": {"navigation": "memory.admin.base.navigation.sections"},
}

# Serving
PUBLIC_URL = env.url("PUBLIC_URL", "http://127.0.0.1:8000")  # the base of links in mail
WEB_WORKERS = env.whole("WEB_WORKERS", 2)
WEB_THREADS = env.whole("WEB_THREADS", 32)  # of each process
WORKER_NICE = env.whole("WORKER_NICE", 10)  # the niceness of worker processes
STOP_SECONDS = env.whole("STOP_SECONDS", 30)  # for running work to end at a stop
METRICS_TOKEN = env.text("METRICS_TOKEN")  # the token for /metrics; without it the page is off

# Mail
globals().update(env.email("EMAIL_URL"))
EMAIL_TIMEOUT = 20  # seconds for a whole letter
# Requests and proposals within 24 hours: by one person or program, and to one agent. Each sends a letter to a steward.
ASKS_PER_PERSON = env.whole("ASKS_PER_PERSON", 10)
ASKS_PER_AGENT = env.whole("ASKS_PER_AGENT", 20)
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "palimpsest@localhost")
# Hosts of webhooks that may have private addresses, and may use http instead of https.
WEBHOOK_ALLOWED_HOSTS = [host.lower() for host in env.listed("WEBHOOK_ALLOWED_HOSTS", [])]

# The cache of opened search indexes, in megabytes per process. The least recently used are dropped first.
SEARCH_CACHE_MB = env.whole("SEARCH_CACHE_MB", 512)
SEARCH_LAYER_MAX = env.whole("SEARCH_LAYER_MAX", 100_000)  # memories of one index, unless core and journal have more

# The API
API_BODY_BYTES = env.whole("API_BODY_BYTES", 8_000_000)  # of a JSON body
API_IMPORT_BYTES = env.whole("API_IMPORT_BYTES", 20 * 2**20)  # of an import, also when it is unpacked
API_RATE = env.whole("API_RATE", 1_200)  # requests per minute and key
CONTEXT_JOURNAL_DAYS = env.whole("CONTEXT_JOURNAL_DAYS", 7)
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],  # subclasses of View have their own (memory/api/base/views.py)
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["memory.api.base.bodies.StrictJSON"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_SCHEMA_CLASS": "memory.api.base.schema.Schema",
    "EXCEPTION_HANDLER": "drf_standardized_errors.handler.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,  # our endpoints use `format` themselves
}
DRF_STANDARDIZED_ERRORS = {
    "EXCEPTION_HANDLER_CLASS": "memory.api.base.errors.Handler",
    "EXCEPTION_FORMATTER_CLASS": "memory.api.base.errors.Formatter",
    "ENABLE_IN_DEBUG_FOR_UNHANDLED_EXCEPTIONS": True,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Palimpsest API",
    "DESCRIPTION": "Long-term memory that AI agents refine themselves.",
    "VERSION": __version__,
    "SORT_OPERATIONS": False,  # the order of the URL patterns
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "memory.api.base.schema.add_tags"],
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {  # for fields with the same name or values
        "AccessStateEnum": "audit.models.ACCESS_STATES",
        "ProposalStateEnum": "audit.models.PROPOSAL_STATES",
        "RemovalStateEnum": "audit.models.REMOVAL_STATES",
        "LayerEnum": "memory.models.Layer.values",
        "ActorKindEnum": "audit.models.ActorKind.values",
        "AskerKindEnum": ["person", "operator"],
        "MemoryKindEnum": "memory.models.Kind.values",
        "RecordingKindEnum": "memory.recording.interactions.KINDS",
        "DifferenceKindEnum": "memory.vault.comparing.KINDS",
        "LevelEnum": "memory.recording.interactions.LEVELS",
    },
}
