//! What can be said on the command line.

mod cursor;
mod directory;
mod gateway;
mod import;
mod pages;
mod proxy;
mod server;
mod stream;
mod tls;
mod token;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use sbp_client::Position;
use sbp_server::MetadataLocation;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

pub(crate) use cursor::{Cursor, CursorAction};
pub(crate) use directory::{Backup, Restore, Verify};
pub(crate) use gateway::{Gateway, ServeOthers};
pub(crate) use import::{Import, ImportPravega, ImportSource, ImportTank, ImportedHow};
pub(crate) use pages::{Completions, Man};
pub(crate) use proxy::Proxy;
pub(crate) use server::{Balance, ClusterAction, Drain, ForceSeal, Server, ServerAction, Watched};
pub(crate) use stream::{Cluster, CreateStreams, Range, RangeAction, Stream, StreamAction, UpdateStream};
pub(crate) use tls::{ClientTls, MetadataTls, ServerTls, Tls, TlsAction, TlsDev};

pub(crate) use token::{CreateToken, ListTokens, RevokeToken, Token, TokenAction};

use crate::when::{parse_duration, parse_position};

/// Streams of records over the Streaming Batch Protocol: a durable server, and everything one does with it.
#[derive(Debug, Parser)]
#[command(name = "sbp", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    /// Log to standard error: error, warn, info, debug, trace, off, or a filter such as `sbp_client=debug`. A server logs
    /// from `info` on if nothing is said, other commands log nothing.
    #[arg(long, global = true, env = "SBP_LOG", value_name = "LEVEL", value_parser = parse_filter)]
    pub(crate) log: Option<String>,
    /// How a line of the log is written. Text has colours on a terminal alone.
    #[arg(long, global = true, env = "SBP_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  sbp serve --data-dir ./data                    start a durable server on 127.0.0.1:12378
  sbp stream create orders                       create a stream
  echo 'first' | sbp append orders               append one record per line
  sbp fetch orders                               read it back
  sbp fetch orders --follow --json               read on as it grows, one JSON object per record
  sbp stream trim orders --before 2026-01-31     forget what is older
  sbp bench append --size 64 --concurrency 256   measure

Other commands talk to the servers named by --servers or $SBP_SERVERS.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server until SIGINT or SIGTERM.
    Serve(Box<Serve>),
    /// Create, list, describe, update, trim, seal and delete streams.
    Stream(Stream),
    /// List ranges: where a stream's records are.
    Range(Range),
    /// Show the members of the placement driver, and which range servers are up.
    Cluster(Cluster),
    /// Show the figures of a server: what it has done, and how long things took.
    Server(Server),
    /// Show and set named cursors: where jobs go on.
    Cursor(Cursor),
    /// Append records from standard input, arguments or a file.
    Append(Append),
    /// Read records of a stream.
    Fetch(Fetch),
    /// Copy what other brokers hold into streams.
    Import(Import),
    /// Measure round trips to the server.
    Ping(Ping),
    /// Measure rates, latencies and costs.
    Bench(Bench),
    /// Make certificates to try TLS with.
    Tls(Tls),
    /// Say who may do what on a server: make, list and revoke tokens.
    Token(Token),
    /// Serve clients of other protocols in front of a service.
    Gateway(Gateway),
    /// Stand between clients and a server, and make the network misbehave.
    Proxy(Proxy),
    /// Check every checksum in a data directory that no server uses.
    Verify(Verify),
    /// Copy a data directory, also while a server uses it.
    Backup(Backup),
    /// Make a data directory from a backup.
    Restore(Restore),
    /// Print what a shell needs to complete this command.
    Completions(Completions),
    /// Write manual pages.
    Man(Man),
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people: time, level, place, what happened.
    Text,
    /// For programs: a JSON object with timestamp, level, target, message and what belongs to it.
    Json,
}

/// Where the server is, and how long to wait for it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// Servers to connect to, tried in turn: host:port, several separated by commas. With sbps:// in front of one, TLS is
    /// used with all.
    #[arg(
        long,
        env = "SBP_SERVERS",
        default_value = "127.0.0.1:12378",
        value_name = "HOST:PORT"
    )]
    pub(crate) servers: String,
    /// How long one call may take: 30s, 500ms.
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "TIME")]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) tls: ClientTls,
    /// A file with the token that says who you are, for servers that ask. Without it, the token in $SBP_TOKEN is used. A
    /// token is no argument, because others see those.
    #[arg(long, env = "SBP_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Send the token without TLS to servers on other machines too, where everybody on the network is trusted.
    #[arg(long, env = "SBP_TOKEN_IN_CLEAR")]
    pub(crate) token_in_clear: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp serve --data-dir ./data
  sbp serve --data-dir ./data --listen 127.0.0.1:0     any free port; it is printed
  sbp serve --data-dir ./data --http 127.0.0.1:12380   a status page, metrics and health for a browser and Prometheus
  sbp serve --config /etc/sbp/sbp.toml                 settings from a file
  sbp serve --data-dir ./data --auth names.jsonl       asks who its clients are; see sbp token
  sbp serve --data-dir ./data --audit audit.jsonl      writes down who changed what, and who was refused
  sbp serve --data-dir ./data --tank-listen 127.0.0.1:11011
  sbp serve --data-dir ./data --seastar-listen 127.0.0.1:10000
  sbp serve --data-dir ./data --pravega-listen 127.0.0.1:9090
                                                       serves clients of TANK brokers too
  sbp serve --data-dir ./pd --role placement-driver    decides where streams are, and stores no records
  sbp serve --data-dir ./rs --role range-server --placement-driver 127.0.0.1:12378 --listen 127.0.0.1:12379
                                                       stores the ranges that the placement driver gives it
  sbp serve --data-dir ./pd1 --role placement-driver --metadata etcd://127.0.0.1:2379/orders --listen 127.0.0.1:12381
                                                       one of several placement drivers, which share an etcd
  sbp serve --data-dir ./data1 --metadata etcd://127.0.0.1:2379/orders --listen 127.0.0.1:12381
                                                       one of several equal servers that hold each other's copies
  sbp serve --data-dir ./data --tls-cert server.crt --tls-key server.key --tls-client-ca ca.crt
                                                       TLS, for clients with a certificate of that authority

A range server registers with its placement driver under the address it advertises, and asks it for a number the first
time. Clients are given the address of the placement driver, which tells them who holds what.

Prints `listening on HOST:PORT` when it is ready, with sbps:// in front of it where it speaks TLS. SIGINT or SIGTERM
ends it cleanly; SIGKILL loses nothing that was acknowledged. It exits with an error when its log has failed, because nothing can be made durable from then on.

Each flag can also be a variable (--data-dir is $SBP_DATA_DIR), and a line of the file that --config names; a flag wins
over its variable, and that over the file. `sbp serve --print-config` shows what is in force.

What it does, finds and refuses it logs to standard error: `--log warn` for less, `--log-format json` for programs.")]
pub(crate) struct Serve {
    /// A TOML file of settings under the names of the flags: `data-dir = "/var/lib/sbp"`. Flags and variables win.
    #[arg(long, env = "SBP_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print the settings in force and where each comes from, as such a file, and do not serve.
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Where log and metadata live; created when it does not exist. Takes 7 MiB when it is new and 17 MiB with its first
    /// record; once it has more than 60 MiB of records, 144 MiB ahead for what comes next.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// What the server does.
    #[arg(long, value_enum, default_value_t = Role::Both)]
    pub(crate) role: Role,
    /// Where a range server finds its placement driver; of several placement drivers the addresses of all, or of some: these
    /// tell of the others.
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        required_if_eq("role", "range-server")
    )]
    pub(crate) placement_driver: Vec<String>,
    /// Where a placement driver has its metadata that is one of several: the members of an etcd, and a name for the cluster,
    /// the same for all. One of them leads; another takes over when it is gone. With both roles each is a range server of the
    /// cluster too. Without it the metadata are in --data-dir.
    #[arg(long, value_name = "etcd://HOST:PORT,HOST:PORT/NAME")]
    pub(crate) metadata: Option<MetadataLocation>,
    #[command(flatten)]
    pub(crate) metadata_tls: MetadataTls,
    /// Address to listen on; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:12378", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// Address that clients are told to dial, if it is not the one listened on.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
    /// What an acknowledgement means: after fdatasync, or handed to the operating system.
    #[arg(long, value_enum, default_value_t = Durability::Fsync)]
    pub(crate) durability: Durability,
    /// A file that says who may do what, made with `sbp token create`; without it, everybody who can connect may do
    /// everything. It is read again within a second of each change.
    #[arg(long, env = "SBP_AUTH", value_name = "FILE")]
    pub(crate) auth: Option<PathBuf>,
    /// A file with the public keys of whoever issues OAuth tokens (a JSON Web Key Set), or its address (https://...): a
    /// client whose JWT one of them has signed is who the file of names says of its subject. A file is read again within a
    /// second of each change, an address every five minutes, and when a token names a key that is not there.
    #[arg(long, env = "SBP_JWKS", value_name = "FILE|URL", requires_all = ["auth", "jwt_issuer", "jwt_audience"])]
    pub(crate) jwks: Option<PathBuf>,
    /// The authorities that may have issued the certificate of --jwks at an address; without it those that the machine
    /// trusts.
    #[arg(long, env = "SBP_JWKS_CA", value_name = "FILE", requires = "jwks")]
    pub(crate) jwks_ca: Option<PathBuf>,
    /// Who issues these tokens: their `iss`, to the letter.
    #[arg(long, env = "SBP_JWT_ISSUER", value_name = "ISSUER", requires = "jwks")]
    pub(crate) jwt_issuer: Option<String>,
    /// For whom the tokens have to be: one of their `aud`, to the letter.
    #[arg(long, env = "SBP_JWT_AUDIENCE", value_name = "AUDIENCE", requires = "jwks")]
    pub(crate) jwt_audience: Option<String>,
    /// A file with the token that says to other servers of the cluster who this one is, where they have --auth. It needs
    /// the grant server there. Read for each connection.
    #[arg(long, env = "SBP_PEER_TOKEN_FILE", value_name = "FILE")]
    pub(crate) peer_token_file: Option<PathBuf>,
    /// Send that token without TLS to servers on other machines too, where everybody on the network is trusted.
    #[arg(long, env = "SBP_PEER_TOKEN_IN_CLEAR", requires = "peer_token_file")]
    pub(crate) peer_token_in_clear: bool,
    /// A file to which each change of streams and ranges, and each request that was refused by access, is appended: one JSON
    /// object on a line, with when, who, from where, what and the outcome. Made so that its owner alone can read it.
    #[arg(long, env = "SBP_AUDIT", value_name = "FILE")]
    pub(crate) audit: Option<PathBuf>,
    /// Listen where other machines can connect, although they could do everything, or read along.
    #[arg(long)]
    pub(crate) insecure_listen: bool,
    /// Answer HTTP at this address: a status page for people, /status.json, /metrics for Prometheus, /health/live and
    /// /health/ready. Port 0 takes any free one; it is printed. With https:// in front of it, TLS is spoken there with
    /// the certificate of --tls-cert.
    #[arg(long, env = "SBP_HTTP", value_name = "HOST:PORT")]
    pub(crate) http: Option<String>,
    /// A name by which a proxy asks --http on loopback, beside addresses and localhost; several with commas between them.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "http")]
    pub(crate) http_host: Vec<String>,
    /// Have /metrics tell of each stream: offsets, bytes, writers. As many lines as there are streams.
    #[arg(long, requires = "http")]
    pub(crate) metrics_per_stream: bool,
    /// How often to look for records that are older, or more, than their stream keeps.
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "TIME")]
    pub(crate) retention_interval: Duration,
    /// After which time a placement driver has ranges with too few replicas go on on servers that are there for them, and replaces
    /// those that are away.
    #[arg(long, default_value = "30s", value_parser = parse_duration, value_name = "TIME")]
    pub(crate) renew_after: Duration,
    /// After which time without a word from a range server a placement driver has the sealed ranges copied that it has, so that they
    /// are on as many servers as wanted again.
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    pub(crate) replace_after: Duration,
    /// Where a range server stands: the same name for servers that can be lost together, such as those of a rack or a room. The
    /// copies of a range go to different zones, as far as there are such.
    #[arg(long, env = "SBP_ZONE", default_value = "", hide_default_value = true, value_parser = parse_zone, value_name = "NAME")]
    pub(crate) zone: String,
    /// The most bytes a second that a range server sends of sealed ranges to others that are to have copies of them.
    #[arg(long, default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..), value_name = "BYTES")]
    pub(crate) copy_bytes_per_second: u64,
    /// Connections served at once; more are closed as they come.
    #[arg(long, default_value_t = 4_096, value_name = "COUNT")]
    pub(crate) max_connections: usize,
    /// How many of them one address may have.
    #[arg(long, default_value_t = 4_096, value_name = "COUNT")]
    pub(crate) max_connections_per_address: usize,
    /// Connections besides those of clients that have yet to say who they are (TLS, --auth); for one more the oldest is closed.
    #[arg(long, default_value_t = 1_024, value_name = "COUNT")]
    pub(crate) max_unauthenticated_connections: usize,
    /// Bytes that all connections together may hold: requests in progress, answers that nobody took yet.
    #[arg(long, default_value_t = 1 << 30, value_name = "BYTES")]
    pub(crate) max_held_bytes: u64,
    #[command(flatten)]
    pub(crate) others: ServeOthers,
    #[command(flatten)]
    pub(crate) tls: ServerTls,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Placement driver and range server in one process.
    Both,
    /// Decides which streams and ranges exist, and on which range server.
    PlacementDriver,
    /// Stores ranges.
    RangeServer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// Survives loss of power.
    Fsync,
    /// Survives the process, not loss of power.
    None,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  printf 'a\\nb\\n' | sbp append orders           one record per line
  sbp append orders --data first --data second   one record per --data
  sbp append orders --file photo.jpg             the whole file as one record
  sbp append orders --data last --expected-offset 17
                                                 only if it becomes record 17; else nothing is appended
  echo '{\"origin\": \"SFO\", \"delay\": 12}' | sbp append flights --format json
                                                 a row of a stream with columns
  echo '{\"key\": \"k\", \"value\": \"v\", \"headers\": {\"from\": \"web\"}}' | sbp append orders --format json

Prints the offsets of each batch when the server has acknowledged it.")]
pub(crate) struct Append {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Name or number of the stream.
    pub(crate) stream: String,
    /// A record; may be given several times. Standard input is not read then.
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    pub(crate) data: Vec<String>,
    /// A file whose whole content is one record. Standard input is not read then.
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// The key of every record; not for --file.
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    pub(crate) key: Option<String>,
    /// A header of every record, may be given several times; not for --file.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = stream::parse_property, conflicts_with = "file")]
    pub(crate) headers: Vec<(String, String)>,
    /// What a line of standard input is.
    #[arg(long, value_enum, default_value_t = AppendFormat::Lines, conflicts_with_all = ["data", "file"])]
    pub(crate) format: AppendFormat,
    /// Append only if the first record gets this offset. Later batches then have to follow right behind.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) expected_offset: Option<i64>,
    /// Lines per batch when standard input is read.
    #[arg(long, default_value_t = 1_000, value_name = "LINES")]
    pub(crate) batch: usize,
    /// How batches are compressed.
    #[arg(long, value_enum, default_value_t = Compression::None)]
    pub(crate) compression: Compression,
    /// Do not print the offsets.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AppendFormat {
    /// The value of a record.
    Lines,
    /// A JSON object: the columns of a row, or key, value and headers of a record, as `sbp fetch --json` writes them.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compression {
    None,
    Lz4,
    Zstd,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp fetch orders                                 everything there is now
  sbp fetch orders --from 100 --to 200             offsets 100 to 199
  sbp fetch orders --from latest-10                the last ten records
  sbp fetch orders --from -1h                      batches that reach the last hour
  sbp fetch orders --from 2026-01-31T10:00:00Z     batches that reach that time, and later ones
  sbp fetch orders --from latest --follow          what is appended from now on, until interrupted
  sbp fetch orders --format raw --delimiter '\\0'   values that may contain newlines, for xargs -0
  sbp fetch orders --json | sbp append copy --format json
                                                   a copy: keys, values, headers, columns")]
pub(crate) struct Fetch {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Name or number of the stream.
    pub(crate) stream: String,
    /// Where to start: earliest, latest, latest-100, an offset, a time, or -1h for an hour ago.
    #[arg(long, default_value = "earliest", value_name = "WHERE", value_parser = parse_position, allow_hyphen_values = true)]
    pub(crate) from: Position,
    /// Where to end, exclusive; written as for --from.
    #[arg(
        long,
        default_value = "latest",
        value_name = "WHERE",
        value_parser = parse_position,
        allow_hyphen_values = true,
        conflicts_with = "follow"
    )]
    pub(crate) to: Position,
    /// Go on when the end is reached, as records arrive.
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Stop after this many records.
    #[arg(long, value_name = "RECORDS")]
    pub(crate) max: Option<u64>,
    /// How records are written.
    #[arg(long, value_enum, default_value_t = FetchFormat::Text)]
    pub(crate) format: FetchFormat,
    /// The same as --format json.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// What follows each value of --format raw: text with the escapes \n, \t, \r, \0 and \\.
    #[arg(long, value_name = "TEXT", value_parser = parse_delimiter, default_value = "\\n")]
    pub(crate) delimiter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FetchFormat {
    /// A line for each record: offset, time, key=value. What could be mistaken is a JSON string: a value that is
    /// empty, is the word null, has control characters, or has a = and no key. Lists, maps and structs are JSON. Bytes that are no
    /// UTF-8 are in base 16 behind hex:
    Text,
    /// A JSON object for each record. Bytes that are no UTF-8, and columns of bytes, are in base 16 under names that end
    /// with _hex. Headers are an object, or a list of objects where two have the same name. `sbp append --format json` takes it.
    Json,
    /// The values alone, byte for byte, each followed by the delimiter. A null value is written as nothing.
    Raw,
}

#[derive(Args, Debug)]
pub(crate) struct Ping {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// How many.
    #[arg(long, short = 'n', default_value_t = 4)]
    pub(crate) count: u32,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sbp bench append --size 64 --concurrency 256 --seconds 5
  sbp bench append --embedded --durability none --records 1000000
  sbp bench append --api writer --concurrency 64     idempotent; compare with --api await
  sbp bench fetch --decode                   read what bench append wrote, down to Arrow columns
  sbp bench floor --dir ./data               what sockets and disk can do here without any of this")]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// Append records of one size, a number of them in flight.
    Append(BenchAppend),
    /// Read streams from their beginning to their end.
    Fetch(BenchFetch),
    /// Measure the limits of the machine: loopback round trips and bytes, write and fdatasync.
    Floor(BenchFloor),
}

#[derive(Args, Debug)]
pub(crate) struct BenchAppend {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) embedded: Embedded,
    /// Bytes of each record.
    #[arg(long, default_value_t = 64)]
    pub(crate) size: usize,
    /// Records in each append: 1 writes single records, more write batches.
    #[arg(long, default_value_t = 1)]
    pub(crate) batch: usize,
    /// Appends in flight.
    #[arg(long, default_value_t = 256)]
    pub(crate) concurrency: usize,
    /// How appends are handed to the client.
    #[arg(long, value_enum, default_value_t = Api::Submit)]
    pub(crate) api: Api,
    /// Streams, appended to in turn; they are called bench/0, bench/1 and so on.
    #[arg(long, default_value_t = 1)]
    pub(crate) streams: usize,
    /// How long to measure, after a tenth of it to warm up.
    #[arg(long, default_value_t = 5)]
    pub(crate) seconds: u64,
    /// How many records to append, instead of a time.
    #[arg(long)]
    pub(crate) records: Option<u64>,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a benchmark hands appends to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Api {
    /// All that is due in one hand-over, as bindings do it.
    Submit,
    /// One future for each append.
    Await,
    /// One future for each append of an idempotent writer, one writer for each stream; each has up to 64 in flight.
    Writer,
}

impl Api {
    /// The word for it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Await => "await",
            Self::Writer => "writer",
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct BenchFetch {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Streams to read; all whose names begin with bench/ when none is given.
    pub(crate) streams: Vec<String>,
    /// Decode the batches and build Arrow columns.
    #[arg(long)]
    pub(crate) decode: bool,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchFloor {
    /// Directory whose disk is measured.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// How long each measurement takes.
    #[arg(long, default_value_t = 1)]
    pub(crate) seconds: u64,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Embedded {
    /// Measure a server inside this process, on a temporary directory; CPU time is then that of both sides.
    #[arg(long)]
    pub(crate) embedded: bool,
    /// Durability of the embedded server.
    #[arg(long, value_enum, default_value_t = Durability::Fsync)]
    pub(crate) durability: Durability,
}

/// A level, or a filter as `tracing` knows them.
fn parse_filter(text: &str) -> Result<String, String> {
    // Nothing at all is a level to the library: that of errors.
    let is_level = !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    if !is_level && !text.contains('=') && !text.starts_with("sbp") {
        return Err("the levels are error, warn, info, debug, trace and off".to_owned());
    }
    match EnvFilter::builder().parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The name of a zone.
fn parse_zone(text: &str) -> Result<String, String> {
    match text.len() {
        256.. => Err("a zone's name has 255 bytes at most".to_owned()),
        _ if text.chars().any(char::is_control) => Err("a zone's name has no control characters".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Text in which a backslash begins an escape.
fn parse_delimiter(text: &str) -> Result<String, String> {
    let mut letters = text.chars();
    let mut read = String::new();
    while let Some(letter) = letters.next() {
        read.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some('0') => '\0',
                Some('\\') => '\\',
                _ => return Err(r"a backslash goes with n, t, r, 0 or another backslash".to_owned()),
            },
            other => other,
        });
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{Cli, parse_delimiter, parse_filter};

    #[test]
    fn delimiters_have_escapes() {
        assert_eq!(parse_delimiter(r"a\n\0\\"), Ok("a\n\0\\".to_owned()));
        assert!(parse_delimiter(r"\").is_err() && parse_delimiter(r"\x").is_err());
    }

    #[test]
    fn a_filter_is_a_level_or_names_a_place() {
        for good in [
            "info",
            "WARN",
            "off",
            "sbp_log=debug",
            "warn,sbp_server=trace",
            "sbp_client",
        ] {
            assert_eq!(parse_filter(good), Ok(good.to_owned()));
        }
        for wrong in ["verbose", "sbp_log=loud", ""] {
            assert!(parse_filter(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
