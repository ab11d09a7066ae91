//! `sbp token`: what can be said.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use sbp_server::access::Grant;

use crate::when::parse_duration;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp token create billing --allow 'read:orders/*' --auth names.jsonl > billing.token
  sbp token create root --allow 'read:*' --allow 'write:*' --allow 'admin:*' --auth names.jsonl > root.token
  sbp serve --data-dir ./data --auth names.jsonl
  sbp stream list --token-file billing.token
  sbp token create tenant --allow 'write:tenant/*' --quota bytes-in=1000000 --quota calls=64 --auth names.jsonl > tenant.token
  sbp token create spark --allow 'read:*' --subject 00u1abcd --auth names.jsonl   known by OAuth tokens, see sbp serve --jwks
  sbp token list --auth names.jsonl
  sbp token revoke billing --auth names.jsonl      its connections are closed within a second or two

A grant is read, write or admin, a colon, and a stream's name, a prefix that ends with *, or * for every stream. The word
server is the grant for other servers of the cluster.

The file keeps a token's SHA-256, which is of no use to who reads it: a token is shown once. A running server reads the
file again within a second of each change.")]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) action: TokenAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenAction {
    /// Add a name to the file, and print its token.
    Create(CreateToken),
    /// Show who is known, and what each may do.
    List(ListTokens),
    /// Take a name's tokens away.
    Revoke(RevokeToken),
}

/// The file that `sbp serve --auth` reads.
#[derive(Args, Clone, Debug)]
pub(crate) struct AuthFile {
    /// The file of names, made when it does not exist: one JSON object on each line.
    #[arg(long, env = "SBP_AUTH", value_name = "FILE")]
    pub(crate) auth: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CreateToken {
    #[command(flatten)]
    pub(crate) file: AuthFile,
    /// The name, for grants, quotas, logs and the audit. A name may have several tokens, so that one can replace another.
    pub(crate) name: String,
    /// What the name may do; may be given several times.
    #[arg(long, value_name = "GRANT", required = true)]
    pub(crate) allow: Vec<Grant>,
    /// How long the token counts: 90d, 12h; for ever when it is not given.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) expires: Option<Duration>,
    /// Make no token: the name is whoever has a certificate with this as its first name.
    #[arg(long, value_name = "NAME", conflicts_with = "subject")]
    pub(crate) certificate: Option<String>,
    /// Make no token: the name is the subject of OAuth tokens, which `sbp serve --jwks` believes.
    #[arg(long, value_name = "SUBJECT")]
    pub(crate) subject: Option<String>,
    /// A limit for the name, over all its connections to a server; may be given several times: bytes-in=N and bytes-out=N
    /// (bytes of records a second), calls=N (requests under way), connections=N, streams=N (that it has made).
    #[arg(long, value_name = "LIMIT=N")]
    pub(crate) quota: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ListTokens {
    #[command(flatten)]
    pub(crate) file: AuthFile,
    /// One JSON object on each line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RevokeToken {
    #[command(flatten)]
    pub(crate) file: AuthFile,
    /// Whose tokens.
    pub(crate) name: String,
    /// Only the one that `sbp token list` shows with these digits.
    #[arg(long, value_name = "DIGITS")]
    pub(crate) token: Option<String>,
}
