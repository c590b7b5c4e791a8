"""Who somebody is, proved: certificates, TLS, tokens, passwords, logins."""
