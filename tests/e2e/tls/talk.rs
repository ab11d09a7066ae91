//! What works without TLS works with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sbp_client::{AppendOptions, ReaderOptions};
use sbp_e2e::batches::records;
use sbp_e2e::clients::{contents, records_of, stream, whole};
use sbp_e2e::wait::bounded;
use sbp_types::Offset;

use crate::setting::{Setting, client};

/// More than any buffer on the way holds.
const LARGE: usize = 12 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_all_sizes_go_through() {
    let setting = Setting::new();
    let server = setting.server();
    assert!(server.has_tls());
    let client = setting.client(&server);
    let stream = bounded(stream(&client)).await;
    let options = AppendOptions::default();
    bounded(client.append(stream, records(["a", "b"]), &options))
        .await
        .unwrap();
    let large: Vec<u8> = (0..LARGE).map(|at| (at % 251) as u8).collect();
    let both = tokio::join!(
        client.append(stream, records([&large]), &options),
        client.append(stream, records([&large]), &options),
    );
    both.0.unwrap();
    both.1.unwrap();
    let mut reader = client.reader(vec![whole(stream)], ReaderOptions::default());
    let mut values = Vec::new();
    while let Some(fetched) = bounded(reader.next()).await {
        values.extend(records_of(&fetched.unwrap()).into_iter().map(|(_, value)| value));
    }
    assert!(values == [b"a".to_vec(), b"b".to_vec(), large.clone(), large]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_name_in_the_address_is_enough_where_the_settings_name_the_authority() {
    let setting = Setting::new();
    let server = setting.server();
    let port = server.local_addr().port();
    for address in [format!("sbps://localhost:{port}"), format!("127.0.0.1:{port}")] {
        let client = client(&address, Some(setting.trusting())).unwrap();
        bounded(client.connect(None)).await.unwrap();
    }
    let address = format!("sbp://localhost:{port}");
    let refused = client(&address, Some(setting.trusting())).unwrap_err();
    crate::setting::says(&refused, &["sbp://", "without TLS", "sbps://"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_plain_listener_stands_beside_on_loopback() {
    let setting = Setting::new();
    let issued = setting.server_certificate();
    let server = setting.server_with(&issued, |config| config.plain_listen = Some("127.0.0.1:0".to_owned()));
    let plain = client(&server.plain_addr().unwrap().to_string(), None).unwrap();
    let secured = setting.client(&server);
    let stream = bounded(stream(&secured)).await;
    bounded(plain.append(stream, records(["x"]), &AppendOptions::default()))
        .await
        .unwrap();
    assert_eq!(bounded(contents(&secured, stream)).await, [(Offset(0), "x".to_owned())]);
}

#[test]
fn a_plain_listener_is_for_this_machine_and_beside_tls_alone() {
    let mut config = sbp_e2e::servers::quick_config(None, "127.0.0.1:0");
    config.plain_listen = Some("127.0.0.1:0".to_owned());
    let error = sbp_server::Server::start(config.clone()).unwrap_err();
    crate::setting::says(&error, &["without TLS", "there is none"]);
    let setting = Setting::new();
    let issued = setting.server_certificate();
    config.tls = Some(sbp_server::ServerTlsFiles {
        cert: issued.cert,
        key: issued.key,
        client_ca: None,
    });
    config.plain_listen = Some("0.0.0.0:0".to_owned());
    config.insecure_listen = true;
    let error = sbp_server::Server::start(config).unwrap_err();
    crate::setting::says(&error, &["0.0.0.0:0", "loopback"]);
}

/// How many writers go on while certificates change.
const WRITERS: usize = 4;
/// How many certificates there are, one after the other.
const CERTIFICATES: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_under_writers_that_notice_nothing() {
    let setting = Setting::new();
    let server = setting.server();
    let client = setting.client(&server);
    let stream = bounded(stream(&client)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut appended = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let options = AppendOptions::default();
                    client.append(stream, records(["x"]), &options).await.unwrap();
                    appended += 1;
                }
                appended
            })
        })
        .collect();
    let mut seen = vec![server.certificate().unwrap()];
    for round in 0..CERTIFICATES {
        // Half of a change first: the old pair goes on.
        let pair = setting.server_certificate();
        std::fs::write(&pair.key, "no key").unwrap();
        crate::setting::says(
            &server.reload_certificates().unwrap_err(),
            &["server.key", "private key"],
        );
        assert_eq!(&server.certificate().unwrap(), seen.last().unwrap());
        let name = format!("round-{round}.example.com");
        setting.authority.issue("server", &["localhost", "127.0.0.1", &name]);
        server.reload_certificates().unwrap();
        let now = server.certificate().unwrap();
        assert!(now.contains(&name), "{now}");
        seen.push(now);
        // Whoever comes new is shown the new one.
        let mut named = setting.trusting();
        named.server_name = Some(name);
        let fresh = crate::setting::client(server.address(), Some(named)).unwrap();
        bounded(fresh.append(stream, records(["x"]), &AppendOptions::default()))
            .await
            .unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let mut appended = CERTIFICATES as u64;
    for writer in writers {
        let count = bounded(writer).await.unwrap();
        assert!(count > 0);
        appended += count;
    }
    assert_eq!(bounded(contents(&client, stream)).await.len() as u64, appended);
    assert_eq!(client.stats().connections, 1, "connections stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_new_certificate_is_found_without_being_told() {
    let setting = Setting::new();
    let server = setting.server();
    let mut named = setting.trusting();
    named.server_name = Some("new.example.com".to_owned());
    let fresh = || client(server.address(), Some(named.clone())).unwrap();
    crate::setting::refusal(&fresh()).await;
    setting.authority.issue("server", &["new.example.com"]);
    bounded(async {
        // The server looks at its files once a second.
        while fresh().connect(None).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
