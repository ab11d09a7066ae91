//! A service of Seastar RPC whose one verb, 1, returns its arguments at once. It says where it listens, and serves until its
//! standard input ends: whoever has started it need not end it.

#![allow(clippy::print_stdout, reason = "whoever starts it reads there where it listens")]

use std::error::Error;
use std::io::{Read, stdin};
use std::sync::Arc;

use sbp_peers::seastar::{Exception, Handler, HostConfig, Incoming, RpcServer, ServerConfig};
use tokio::runtime::Builder;

const ECHO: u64 = 1;

struct Echo;

impl Handler for Echo {
    fn call(&self, incoming: Incoming) {
        let reply = match incoming.verb {
            ECHO => Ok(incoming.payload.clone()),
            verb => Err(Exception::UnknownVerb(verb)),
        };
        incoming.reply(reply);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let config = HostConfig::new("127.0.0.1:0");
    let server = RpcServer::start(Arc::new(Echo), &config, ServerConfig::default(), runtime.handle())?;
    println!("listening on {}", server.address());
    stdin().read_to_end(&mut Vec::new())?;
    runtime.block_on(server.close());
    Ok(())
}
