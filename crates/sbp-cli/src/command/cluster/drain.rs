//! `sbp cluster drain`

use std::time::{Duration, Instant};

use sbp_messages::ServerState;
use sbp_types::ServerId;

use super::status::show_stuck;
use crate::args::Drain;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::{Terminal, progress};

/// How often it is asked how far it is.
const PAUSE: Duration = Duration::from_millis(500);
/// For how long nothing moves, and nothing can, before the command ends.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(asked: &Drain, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&asked.connection)?;
    let server = ServerId(asked.server);
    let wanted = match asked.undo {
        true => ServerState::IN_USE,
        false => ServerState::DRAINING,
    };
    session.wait(session.client.set_server_state(server, wanted, None))?;
    if asked.undo {
        terminal.line(format_args!("server {server} is in use again"))?;
        return terminal.flush();
    }
    if asked.no_wait {
        terminal.line(format_args!(
            "server {server} is being emptied: `sbp cluster status` says how far that is"
        ))?;
        return terminal.flush();
    }
    let bar = progress(0, "ranges moved");
    let mut most = 0;
    let mut stuck_since = None;
    loop {
        let now = session.wait(session.client.range_server(server, None))?;
        let left = now.held_range_cnt();
        if left == 0 {
            bar.finish_and_clear();
            terminal.line(format_args!(
                "server {server} holds nothing that counts any more: it may be stopped and removed"
            ))?;
            return terminal.flush();
        }
        most = most.max(left);
        bar.set_length(u64::try_from(most).unwrap_or(0));
        bar.set_position(u64::try_from(most - left).unwrap_or(0));
        stuck_since = (now.stuck_range_cnt >= left).then(|| stuck_since.unwrap_or_else(Instant::now));
        if stuck_since.is_some_and(|since| since.elapsed() >= PATIENCE) {
            bar.finish_and_clear();
            show_stuck(&now, terminal)?;
            terminal.flush()?;
            return Err(CliError::Usage(format!(
                "{left} ranges cannot leave server {server} as things are. It stays marked, and they leave it once they can; \
                 `sbp cluster drain {server} --undo` takes it back"
            )));
        }
        std::thread::sleep(PAUSE);
    }
}
