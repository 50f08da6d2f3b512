"""Names that the configuration shares with the mechanisms, so that it need not import them."""

from __future__ import annotations

PLAIN = "PLAIN"
#: The values of `sasl.mechanism` that authenticate with a user name and a password.
PASSWORD_MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")

OAUTHBEARER = "OAUTHBEARER"
#: kafka-python's name for MSK IAM; on the wire it is OAUTHBEARER.
AWS_MSK_IAM = "AWS_MSK_IAM"
GSSAPI = "GSSAPI"
#: The values of `sasl.mechanism` whose credentials are fetched.
TOKEN_MECHANISMS = (OAUTHBEARER, AWS_MSK_IAM, GSSAPI)

#: The grant types of OAuth 2.0 (RFC 6749, RFC 7523).
CLIENT_CREDENTIALS = "client_credentials"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
