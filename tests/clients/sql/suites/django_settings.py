"""Settings of Django's own tests: two databases of the server that SUITE_… name."""

import os

_SERVER = {
    "ENGINE": "django.db.backends.postgresql",
    "HOST": "127.0.0.1",
    "PORT": os.environ["SUITE_PORT"],
    "USER": os.environ["SUITE_USER"],
    "OPTIONS": {"options": os.environ["SUITE_OPTIONS"]},
}
_NAME = os.environ["SUITE_DATABASE"]
DATABASES = {
    "default": {**_SERVER, "NAME": _NAME},
    "other": {**_SERVER, "NAME": _NAME, "TEST": {"NAME": f"test_{_NAME}_other"}},
}
SECRET_KEY = "of tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "reporting.Runner"
