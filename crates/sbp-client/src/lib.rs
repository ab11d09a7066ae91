//! The client of the Streaming Batch Protocol.
//!
//! Start from [`Client`]: one way to a service, shared by all its clones, with a connection to each of its servers that is
//! used. [`Client::append`] stores one batch; [`Client::writer`] stores batches exactly once and in order, whatever
//! happens to connections and servers; [`Client::reader`] reads bounded [`Span`]s of many streams in order and proves that
//! nothing is missing; [`Client::tail`] follows streams as they grow. What can go wrong is a [`ClientError`], which says
//! whether the call may have taken effect.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use sbp_client::{AppendOptions, Client, ClientConfig, ReaderOptions, Span};
//! use sbp_types::Offset;
//!
//! let config = ClientConfig::new("127.0.0.1:12378")?;
//! let client = Client::new(config, tokio::runtime::Handle::current());
//! let stream = client.find_stream("orders", None).await?.stream_id;
//! let ack = client.append(stream, b"first".as_slice(), &AppendOptions::default()).await?;
//! let everything = Span { stream, start: Offset::EARLIEST, end: Offset::LATEST };
//! println!("{ack}");
//! let mut reader = client.reader(vec![everything], ReaderOptions::default());
//! while let Some(batch) = reader.next().await {
//!     println!("{} records", batch?.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Bindings that make very many appends collect them in [`Submissions`] and take their outcomes in batches through a
//! [`CompletionSink`]: one hand-over and one delivery for everything that happened in a turn.

mod address;
mod admin;
mod append;
mod batching;
mod bulk;
mod call;
mod channel;
mod client;
mod clock;
pub mod codes;
mod config;
mod cursor;
mod error;
mod failure;
mod features;
mod gap;
mod keyed;
mod known;
mod outcome;
mod pinned;
mod pool;
mod position;
mod read;
mod retry;
mod submission;
mod token;
mod unique;
mod writer;

pub use address::{AddressError, Scheme, ServerAddress};
pub use admin::{ForcedEnd, Move, SealOptions, caution_about_copies, plan_balance};
pub use append::{AppendOptions, Records};
pub use batching::{BatchWriter, BatchWriterOptions, Deliveries, Delivery, Pushed, Record};
pub use bulk::{BulkEvent, BulkOptions, BulkRepeat, BulkStored, BulkWriter};
pub use call::Each;
pub use client::Client;
pub use clock::wall_clock;
pub use config::{ClientConfig, ConfigError, ReadFrom, RetryPolicy};
pub use cursor::{CURSOR_PREFIX, CommittedPlace, Cursor, CursorOptions};
pub use sbp_transport::{ClientTlsFiles, TlsFileError};

pub use error::{ClientError, ErrorKind, PeerOutcome};
pub use features::{Durability, Features};
pub use gap::Gap;
pub use keyed::{KEYED_MAX, Keyed, KeyedOptions};
pub use outcome::{Ack, AppendOutcome};
pub use position::{Position, Positions, Span};
pub use read::{
    Decoded, FetchEntry, FetchOptions, Fetched, FetchedBatch, Growth, OnGap, Reader, ReaderOptions, Tail, TailEvent,
    TailOptions, Window,
};

pub use channel::{ClientMetrics, ClientStats, RoundTripStats};
pub use submission::{
    AppendEntry, AppendOp, AppendResultOf, AppendsInFlight, Body, CompletionSink, Reply, Submissions,
};

pub use token::{TokenFuture, TokenSource};
pub use unique::unique_writer_id;
pub use writer::{Writer, WriterOptions};
