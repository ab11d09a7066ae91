//! `sbp ping`

use crate::args::Ping;
use crate::error::CliError;
use crate::session::Session;
use crate::terminal::Terminal;

pub(crate) fn run(ping: &Ping, terminal: &mut Terminal) -> Result<(), CliError> {
    let session = Session::new(&ping.connection)?;
    session.wait(session.client.connect(Some(ping.connection.timeout)))?;
    let durability = session
        .client
        .features()
        .map_or("unknown", |features| features.durability.as_str());
    terminal.line(format_args!(
        "{} answers; durability {durability}",
        ping.connection.servers
    ))?;
    for number in 1..=ping.count {
        let round_trip = session.wait(session.client.ping(Some(ping.connection.timeout)))?;
        terminal.line(format_args!("{number}: {:.3} ms", round_trip.as_secs_f64() * 1_000.0))?;
        terminal.flush()?;
    }
    Ok(())
}
