//! Reading: spans of streams to their ends, streams as they grow, and where offsets are.

mod answer;
mod decode;
mod fetch;
mod growth;
mod plan;
mod positions;
mod reader;
mod request;
mod tail;
mod window;

pub use self::answer::FetchedBatch;
pub use self::decode::Decoded;
pub use self::fetch::{FetchEntry, FetchOptions, Fetched};
pub use self::growth::Growth;
pub use self::reader::{Reader, ReaderOptions};
pub use self::tail::{OnGap, Tail, TailEvent, TailOptions};
pub use self::window::Window;
