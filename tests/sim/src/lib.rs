//! Doubles for tests: a file system that loses power, and a clock that stands still.
//!
//! [`SimFileSystem`] keeps what is synced apart from what is not. It can lose power at any counted operation
//! ([`SimFileSystem::power_off_at`]); [`SimFileSystem::power_cut`] then gives the disk that the next start may find:
//! every unsynced 512-byte sector, length and name may or may not have made it. [`SimFileSystem::hold`] makes it slow.

mod clock;
mod delay;
mod disk;
mod node;
mod sim;

pub use clock::ManualClock;
pub use delay::Held;
pub use disk::{Operation, Survival};
pub use sim::SimFileSystem;
