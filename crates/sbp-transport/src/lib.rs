//! The tokio driver around one end of a connection, whatever it speaks.
//!
//! [`drive`] is the one task of a connection: it reads, writes, keeps the time and takes commands from a [`Mailbox`],
//! and calls an [`Application`] for everything that needs knowledge of messages. [`dial()`] and [`listen()`] make sockets,
//! and [`Descriptors`] remembers which are open, for the sake of forked children. A [`Link`] is such a
//! socket, with TLS around what goes through it or without. A [`ReconnectingChannel`] does all of that
//! for whoever wants one lasting way to a peer.

mod accept;
mod application;
mod channel;
mod descriptors;
mod dial;
mod driver;
mod host;
mod link;
mod listen;
mod log_rate_limiter;
mod mailbox;
mod memory;
mod places;
mod reconnect;
mod shared_driver;
mod socket;
mod stats;
mod tls;

pub use accept::{Acceptor, AcceptorSettings, Admitted, Entrance, Reception};
pub use application::{Application, ReasonOf};
pub use channel::{ChannelOwner, ChannelQueue, ChannelState, ReadyConnection, ReconnectingChannel};
pub use descriptors::{Descriptors, Registered};
pub use dial::{DialError, dial, is_loopback};
pub use driver::{Driven, Settled, drive, drive_until_settled};
pub use host::{CommandOf, Host, HostConfig, HostError, Hosting};
pub use link::{Accepted, Link, LinkSettings};
pub use listen::{ListenError, listen};
pub use log_rate_limiter::LogRateLimiter;
pub use mailbox::{Inbox, Mailbox, SleepingDriver, mailbox};
pub use memory::Memory;
pub use places::{NoPlace, Place, PlaceLimits, Places};
pub use reconnect::{Attempts, BackOff, Reconnect, ReconnectPolicy};
pub use shared_driver::drive_shared;
pub use socket::{Socket, accept_options};
pub use stats::TransportStats;
pub use tls::{ClientTls, ClientTlsFiles, ServerTls, ServerTlsFiles, TlsFailure, TlsFileError};
