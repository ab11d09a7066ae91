//! A client for the time of one command.

use std::future::Future;
use std::sync::Arc;

use sbp_client::{Client, ClientConfig, TokenSource};
use sbp_messages::{Stream, Token};
use sbp_types::StreamId;
use tokio::runtime::{Builder, Runtime};

use crate::args::Connection;
use crate::error::CliError;

/// A client and the runtime it lives on.
#[derive(Debug)]
pub(crate) struct Session {
    runtime: Runtime,
    pub(crate) client: Client,
}

impl Session {
    /// A client for the servers that were named; nothing is connected yet.
    pub(crate) fn new(connection: &Connection) -> Result<Self, CliError> {
        let mut config = ClientConfig::with_tls(&connection.servers, connection.tls.files())?;
        config.timeout = connection.timeout;
        config.token = token(connection);
        config.token_in_clear = connection.token_in_clear;
        config.client_id = format!("sbp command, pid {}", std::process::id());
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sbp-io")
            .enable_all()
            .build();
        let runtime = runtime.map_err(CliError::system("start a thread"))?;
        let client = Client::new(config, runtime.handle().clone());
        Ok(Self { runtime, client })
    }

    /// Waits for a future.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Finds a stream by what the user calls it: digits are a number, everything else is a name.
    pub(crate) fn find(&self, stream: &str) -> Result<Arc<Stream>, CliError> {
        let found = match stream.parse::<i64>() {
            Ok(id) => self
                .wait(self.client.describe_streams(&[StreamId(id)], &[], None))?
                .pop(),
            Err(_not_a_number) => return Ok(self.wait(self.client.find_stream(stream, None))?),
        };
        found
            .unwrap_or_else(|| Err(sbp_client::ClientError::invalid("no stream was named")))
            .map_err(CliError::from)
    }
}

/// What says who the user is.
fn token(connection: &Connection) -> Option<TokenSource> {
    let in_file = connection.token_file.clone().map(TokenSource::file);
    in_file.or_else(|| {
        let token = std::env::var("SBP_TOKEN").ok().filter(|token| !token.is_empty());
        token.map(|token| TokenSource::Fixed(Token::new(token)))
    })
}

impl Drop for Session {
    fn drop(&mut self) {
        self.runtime.block_on(self.client.close());
    }
}
