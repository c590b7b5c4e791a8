# mypy: ignore-errors
# ruff: noqa: T201
"""A Django project against a database: `python run.py PORT DATABASE`, in a copy of this folder.

Makes and applies all migrations, then runs each function of `checks.py` and prints `ok NAME`, or
`FAIL NAME` with the error and the last statement. Exit code 1 if any failed.
"""

import sys
import traceback

import django
from django.conf import settings
from django.core.management import call_command

_CONTRIB = ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")
_PROCESSORS = (
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
)


def configure(port, database):
    """The project's settings, and its tables."""
    settings.configure(
        SECRET_KEY="x" * 50,
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="urls",
        USE_TZ=True,
        INSTALLED_APPS=[*(f"django.contrib.{name}" for name in _CONTRIB), "shop"],
        STATIC_URL="/static/",
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {"context_processors": list(_PROCESSORS)},
            }
        ],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": "127.0.0.1",
                "PORT": port,
                "USER": "kvorum",
                "NAME": database,
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()
    call_command("makemigrations", "shop", verbosity=0)
    call_command("migrate", verbosity=0)


def main(port, database):
    configure(port, database)
    import checks
    from django.db import connection

    connection.force_debug_cursor = True
    failed = 0
    for check in checks.CHECKS:
        try:
            check()
            print("ok", check.__name__)
        except Exception as error:  # noqa: BLE001  the others go on
            failed += 1
            print("FAIL", check.__name__, type(error).__name__, error)
            print("".join(traceback.format_tb(error.__traceback__)[-4:]))
            if connection.queries_log:
                print(connection.queries_log[-1]["sql"][:1500])
            connection.close()
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
