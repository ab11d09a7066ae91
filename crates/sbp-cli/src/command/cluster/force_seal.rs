//! `sbp cluster force-seal`

use std::io::{self, BufRead, IsTerminal, Write};

use sbp_client::ForcedEnd;
use sbp_messages::RangeId;
use sbp_types::RangeIndex;

use crate::args::ForceSeal;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;

pub(crate) fn run(asked: &ForceSeal, terminal: &mut Terminal) -> Result<(), CliError> {
    let Some((stream, index)) = asked.range.rsplit_once('/') else {
        return Err(CliError::Usage(format!(
            "{} is no range: write STREAM/INDEX",
            asked.range
        )));
    };
    let index: i32 = index
        .parse()
        .map_err(|_| CliError::Usage(format!("{index} is no index of a range: write STREAM/INDEX")))?;
    let session = Session::new(&asked.connection)?;
    let stream_id = session.find(stream)?.stream_id;
    if !asked.yes {
        confirm(&asked.range)?;
    }
    let range = RangeId {
        stream_id,
        range_index: Some(RangeIndex(index)),
        epoch: None,
        end_offset: None,
    };
    let ForcedEnd { next, lost } = session.wait(session.client.force_seal(range, None))?;
    terminal.line(format_args!(
        "range {} is sealed and ends at {end}: what was acknowledged from offset {end} on is lost, if there was any. The stream \
         goes on in range {}/{}",
        asked.range,
        next.stream_id,
        next.range_index,
        end = next.start_offset,
    ))?;
    if !lost.is_empty() {
        let ranges = session.wait(session.client.list_ranges(stream_id, None))?;
        let sealed = ranges
            .into_iter()
            .filter(|sealed| sealed.range_index == RangeIndex(index));
        let ids = sealed
            .flat_map(|sealed| sealed.servers)
            .filter_map(|replica| replica.range_server);
        let servers: Vec<_> = ids.map(|server| server.server_id.to_string()).collect();
        terminal.line(format_args!(
            "the disks of all of its servers ({}) that are there have lost records of it; reads of these offsets end with 2502, unless a \
             server comes back that has them:",
            servers.join(", ")
        ))?;
        for (from, to) in lost {
            terminal.line(format_args!("  {from} to {}", to.0 - 1))?;
        }
    }
    terminal.flush()
}

/// Asks whoever sits there.
fn confirm(range: &str) -> Result<(), CliError> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(CliError::Usage(format!(
            "records of range {range} may be lost by this: say --yes"
        )));
    }
    let mut stderr = io::stderr();
    let question = format!(
        "Range {range} is ended where the best copy ends that is left. Acknowledged records behind that are lost for ever,\n\
         also if their servers come back later; what all disks have lost before it stays lost. Type the range to go on: "
    );
    stderr
        .write_all(question.as_bytes())
        .and_then(|()| stderr.flush())
        .map_err(CliError::Output)?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(CliError::Input)?;
    match answer.trim() == range {
        true => Ok(()),
        false => Err(CliError::Usage("nothing was done".to_owned())),
    }
}
