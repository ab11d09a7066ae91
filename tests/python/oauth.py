"""OAuth tokens for tests: made once, with an Ed25519 key that nobody has any more, for subject ``job-7``."""

from __future__ import annotations

import json
from pathlib import Path

ISSUER = "https://login.example/"
AUDIENCE = "sbp.example"
SUBJECT = "job-7"

_KEYS = {
    "keys": [
        {
            "kty": "OKP",
            "crv": "Ed25519",
            "x": "tPUVe4xePU9jjdn74PAWkdmI2D63UJD-fE4q-Q1UjM4",
            "kid": "ours",
            "use": "sig",
        }
    ]
}

# Until 2100.
VALID = (
    "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCIsImtpZCI6Im91cnMifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUvIiwiY"
    "XVkIjoic2JwLmV4YW1wbGUiLCJzdWIiOiJqb2ItNyIsImV4cCI6NDEwMjQ0NDgwMH0.8g7sFkUz4GDIuAfTbLiJ1AdMf54Fndevn"
    "FUHnTk_X2tM7NDhtSfXrHYk4RRz8DG40neZ2Jm30cP2SNejikoaCw"
)
# Until 2001.
EXPIRED = (
    "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCIsImtpZCI6Im91cnMifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUvIiwiY"
    "XVkIjoic2JwLmV4YW1wbGUiLCJzdWIiOiJqb2ItNyIsImV4cCI6OTc4MzA3MjAwfQ.NGxcS_jVPVqP8TFDQ73y9SyW96qRJX6TvN"
    "HpHNpvzBQCwGRdOOPTRAZJDZ4yMRq0oRY2O5chH--AZA4tdJmiDg"
)
# For another audience.
ELSEWHERE = (
    "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCIsImtpZCI6Im91cnMifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUvIiwiY"
    "XVkIjoib3RoZXIuZXhhbXBsZSIsInN1YiI6ImpvYi03IiwiZXhwIjo0MTAyNDQ0ODAwfQ.6DWLJ0PWYY46il84jPPWl8MwOZUWuD"
    "Rdq_dftlJzdZTIrhSPrd7g_aKsFURey3paZvi660-gddwNFbV64T34Ag"
)
# Signed by somebody else.
FORGED = (
    "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCIsImtpZCI6Im91cnMifQ.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbGUvIiwiY"
    "XVkIjoic2JwLmV4YW1wbGUiLCJzdWIiOiJqb2ItNyIsImV4cCI6NDEwMjQ0NDgwMH0.luWxT8m8knpl74ZBRO8Q1imZrjSR3cvGh"
    "KYMqeBm8cd-aD03M9ZXr2DeVyrXrTVAszOv1M9UG70e_QND_dmcCQ"
)


def keys(directory: Path) -> Path:
    """Writes the file of public keys, which nobody else may change."""
    file = directory / "jwks.json"
    file.write_text(json.dumps(_KEYS))
    file.chmod(0o600)
    return file
