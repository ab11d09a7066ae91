//! Reading: spans of streams to their ends, streams as they grow, and where offsets are.

mod decode;
mod fetch;
mod positions;
mod reader;
mod request;
mod tail;
mod window;

pub use self::decode::Decoded;
pub use self::fetch::{FetchAnswers, FetchEntry, FetchOptions, Fetched, FetchedBatch};
pub use self::reader::{Reader, ReaderOptions};
pub use self::tail::{OnGap, Tail, TailEvent, TailOptions};
pub use self::window::Window;
