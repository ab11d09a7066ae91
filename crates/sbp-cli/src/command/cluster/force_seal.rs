//! `sbp cluster force-seal`

use std::io::{self, BufRead, IsTerminal, Write};

use sbp_client::SealOptions;
use sbp_messages::{RangeId, SealKind};
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
    let options = SealOptions {
        kind: SealKind::PLACEMENT_DRIVER,
        force: true,
        ..SealOptions::default()
    };
    let mut sealed = session.wait(session.client.seal_ranges_with(&[range], &options, None))?;
    let next = sealed
        .pop()
        .unwrap_or_else(|| Err(sbp_client::ClientError::invalid("no range was named")))?;
    terminal.line(format_args!(
        "range {} is sealed and ends at {end}: what was acknowledged from offset {end} on is lost, if there was any. The stream \
         goes on in range {}/{}",
        asked.range,
        next.stream_id,
        next.range_index,
        end = next.start_offset,
    ))?;
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
         also if their servers come back later. Type the range to go on: "
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
