//! `sbp cluster balance`

use std::collections::BTreeMap;

use sbp_client::{Move, SealOptions, plan_balance};
use sbp_messages::{RangeCriteria, RangeId, SealKind};
use sbp_types::ServerId;

use crate::args::Balance;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::{Terminal, progress};

pub(crate) fn run(asked: &Balance, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&asked.connection)?;
    let cluster = session.wait(session.client.describe_cluster(None))?;
    if cluster.range_servers.is_none() {
        return Err(CliError::Usage(
            "no placement driver leads at the moment: try again".to_owned(),
        ));
    }
    let streams = session.wait(session.client.list_streams(None))?;
    let criteria: Vec<_> = streams
        .iter()
        .map(|stream| RangeCriteria {
            stream_id: Some(stream.stream_id),
            range_server: None,
        })
        .collect();
    let mut ranges = Vec::new();
    for listed in session.wait(session.client.list_ranges_by(&criteria, None))? {
        // A stream may have been deleted since.
        ranges.extend(listed.unwrap_or_default());
    }
    let moves = plan_balance(&cluster, &ranges, usize::from(asked.most));
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
    let bar = progress(u64::try_from(moves.len()).unwrap_or(0), "ranges sealed");
    let mut by_server: BTreeMap<ServerId, Vec<RangeId>> = BTreeMap::new();
    for Move { range, from } in moves {
        by_server.entry(*from).or_default().push(RangeId {
            stream_id: range.stream_id,
            range_index: Some(range.range_index),
            epoch: range.epoch,
            end_offset: None,
        });
    }
    let mut failed = 0_usize;
    for (from, ranges) in by_server {
        let options = SealOptions {
            kind: SealKind::PLACEMENT_DRIVER,
            avoid: vec![from],
            force: false,
        };
        let sealed = session.wait(session.client.seal_ranges_with(&ranges, &options, None))?;
        for result in sealed {
            bar.inc(1);
            if let Err(error) = result {
                failed += 1;
                terminal.line(format_args!("not moved from server {from}: {error}"))?;
            }
        }
    }
    bar.finish_and_clear();
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
