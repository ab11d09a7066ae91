//! A proxy that knows frames, to find out what a client or a server does when the network misbehaves.
//!
//! A [`Proxy`] listens, connects every client to its target, and passes on what they send, until a [`Rule`] says
//! otherwise: frames can be dropped, delayed, sent twice, overtaken by later answers, or held until a hook has decided;
//! connections can be cut in front of a frame, behind it or inside it. A rule picks its frames by operation, direction,
//! kind, number, byte position and chance. It never looks into a message, so it works with every dialect.
//!
//! ```no_run
//! use sbp_proxy::{Fault, Proxy, ProxyConfig, Rule};
//! use sbp_frame::OpCode;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let proxy = Proxy::start(ProxyConfig::new("127.0.0.1:12378"))?;
//! // The third acknowledgement is lost, and later every hundredth request cuts the connection.
//! proxy.add(Rule::new(Fault::Drop).opcode(OpCode::APPEND).answers().nth(3));
//! proxy.add("cut request APPEND every=100".parse()?);
//! println!("connect to {}", proxy.address());
//! # Ok(())
//! # }
//! ```
//!
//! A client that is told other addresses by the server goes around the proxy: start the server with the proxy's address
//! as the one it advertises (`sbp serve --advertise`).
//!
//! Bytes that are no frames are passed on as they are, so that the proxy is no obstacle to tests of bad input.

mod config;
mod counts;
mod error;
mod held;
mod link;
mod outgoing;
mod proxy;
mod pump;
mod relay;
mod rule;
mod rulebook;
mod seen;
mod shared;

pub use config::{Observer, ProxyConfig};
pub use counts::ProxyCounts;
pub use error::ProxyError;
pub use held::{Held, Hook};
pub use proxy::Proxy;
pub use rule::{Cut, Fault, Rule, RuleTextError};
pub use rulebook::{RuleCount, RuleId};
pub use sbp_transport::ListenError;
pub use seen::{Action, Direction, Kind, Seen};
