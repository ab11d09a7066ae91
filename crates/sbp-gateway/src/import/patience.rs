//! Servers that are away are asked again.

use std::time::Duration;

use sbp_peers::pravega::{PravegaError, PravegaErrorKind};
use sbp_peers::tank::{TankError, TankErrorKind};
use tokio::time::{Instant, sleep};

/// How long to wait before a server that was lost is asked again.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(500);

/// An error of a server, which may be that it is away.
pub(super) trait Away: std::fmt::Display {
    /// Whether it is.
    fn is_away(&self) -> bool;
}

impl Away for TankError {
    fn is_away(&self) -> bool {
        self.kind() == TankErrorKind::Lost
    }
}

impl Away for PravegaError {
    fn is_away(&self) -> bool {
        self.kind() == PravegaErrorKind::Lost
    }
}

/// Asks a server until it answers, or `patience` is over.
pub(super) async fn patiently<T, E, F>(patience: Duration, mut ask: impl FnMut() -> F) -> Result<T, E>
where
    E: Away,
    F: Future<Output = Result<T, E>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(error) if error.is_away() && begun.elapsed() + ASK_AGAIN < patience => {
                tracing::warn!(%error, "the server is asked again");
                sleep(ASK_AGAIN).await;
            }
            answered => return answered,
        }
    }
}
