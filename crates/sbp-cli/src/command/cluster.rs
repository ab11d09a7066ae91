//! `sbp cluster`

mod balance;
mod drain;
mod force_seal;
mod status;

use crate::args::{Cluster, ClusterAction};
use crate::error::CliError;
use crate::terminal::Terminal;

pub(crate) fn run(asked: &Cluster, terminal: &mut Terminal) -> Result<(), CliError> {
    match &asked.action {
        None if asked.json => status::members(&asked.connection, terminal),
        None => status::run(&asked.connection, false, terminal),
        Some(ClusterAction::Status { connection, json }) => status::run(connection, *json, terminal),
        Some(ClusterAction::Drain(drain)) => drain::run(drain, terminal),
        Some(ClusterAction::Balance(balance)) => balance::run(balance, terminal),
        Some(ClusterAction::ForceSeal(seal)) => force_seal::run(seal, terminal),
    }
}
