//! `sbp cluster balance`

use sbp_client::Move;

use crate::args::Balance;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;

pub(crate) fn run(asked: &Balance, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&asked.connection)?;
    let moves = session.client.moves_to_balance(usize::from(asked.most), None);
    let moves = session.wait(moves)?;
    if moves.is_empty() {
        terminal.line("the open ranges are spread evenly: nothing to do")?;
        return terminal.flush();
    }
    if asked.dry_run {
        for Move { range, from } in &moves {
            terminal.line(format_args!(
                "range {}/{} would be sealed, and its stream leave server {from}, or follow there",
                range.stream_id, range.range_index
            ))?;
        }
        terminal.line(format_args!("{} ranges would be sealed; nothing was done", moves.len()))?;
        return terminal.flush();
    }
    carry_out(&session, &moves, terminal)
}

fn carry_out(session: &Session, moves: &[Move], terminal: &mut Terminal) -> Result<(), CliError> {
    let mut failed = 0_usize;
    for (from, result) in session.wait(session.client.make_moves(moves, None))? {
        if let Err(error) = result {
            failed += 1;
            terminal.line(format_args!("not moved from server {from}: {error}"))?;
        }
    }
    terminal.line(format_args!(
        "{} ranges were sealed and go on in new ones; run it again to see whether more are to be moved",
        moves.len() - failed
    ))?;
    terminal.flush()?;
    match failed {
        0 => Ok(()),
        _ => Err(CliError::Usage(format!(
            "{failed} of {} ranges were not moved",
            moves.len()
        ))),
    }
}
