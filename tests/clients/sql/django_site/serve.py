# mypy: ignore-errors
"""The project's admin over HTTP on the loopback: `python serve.py PORT DATABASE HTTP_PORT`, in a
copy of this folder. The user is root, the password pw. Prints `serving` when it does.
"""

import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import run


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


def main(port, database, http_port):
    run.configure(port, database)
    from django.contrib.auth.models import User
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.wsgi import get_wsgi_application

    User.objects.create_superuser("root", "root@example.org", "pw")
    site = StaticFilesHandler(get_wsgi_application())
    with make_server("127.0.0.1", http_port, site, Server, Quiet) as server:
        sys.stdout.write("serving\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
