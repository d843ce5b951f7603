"""Settings of the bare project: the service's own database options, and nothing that could slow it."""

from config import settings as ours

SECRET_KEY = "bare"
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["tests.bench.bare"]
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]  # which tells the length of an answer
ROOT_URLCONF = "tests.bench.bare.views"
DATABASES = ours.DATABASES
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
LOGGING_CONFIG = None
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "UNAUTHENTICATED_USER": None,
}
