//! Servers that ask who their clients are.

use std::time::Duration;

use sbp_client::AppendOptions;
use sbp_e2e::batches::records;
use sbp_e2e::certificates::Authority;
use sbp_e2e::clients::{contents, stream};
use sbp_e2e::wait::bounded;
use sbp_transport::{
    ClientTls, Descriptors, Link, LinkSettings, ServerTls, ServerTlsFiles, Socket, TlsFailure, listen,
};
use sbp_types::StreamId;

use crate::setting::{CLIENT, Setting, client, refusal, says};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_with_a_certificate_is_served() {
    let setting = Setting::new();
    let server = setting.mutual_server();
    let issued = setting.authority.issue("client", &[CLIENT]);
    let client = client(server.address(), Some(setting.showing(&issued))).unwrap();
    let stream = bounded(stream(&client)).await;
    bounded(client.append(stream, records(["x"]), &AppendOptions::default()))
        .await
        .unwrap();
    assert_eq!(bounded(contents(&client, stream)).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_without_is_told_that_it_needs_one() {
    let setting = Setting::new();
    let server = setting.mutual_server();
    let nobody = setting.client(&server);
    says(
        &refusal(&nobody).await,
        &["asks for a client certificate", "none was given"],
    );
    // Appends end at once too, and it is certain that nothing was done.
    let options = AppendOptions::default();
    let error = bounded(nobody.append(StreamId(1), records(["x"]), &options))
        .await
        .unwrap_err();
    assert_eq!(error.code().0, 9020, "{error}");
    assert!(!error.is_indeterminate());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_whose_certificate_is_not_accepted_is_told_which_and_why() {
    let setting = Setting::new();
    let server = setting.mutual_server();
    let strangers = Authority::new(setting.directory.path(), "strangers");
    let strange = strangers.issue("strange", &["stranger.example.com"]);
    let error = refusal(&client(server.address(), Some(setting.showing(&strange))).unwrap()).await;
    says(
        &error,
        &[
            "does not accept",
            "stranger.example.com",
            "CN=strangers",
            "not trusted there",
        ],
    );
    let old = setting.authority.issue_expired("old", &[CLIENT]);
    let error = refusal(&client(server.address(), Some(setting.showing(&old))).unwrap()).await;
    says(&error, &["does not accept", CLIENT, "2021-02-03T00:00:00Z", "expired"]);
}

/// Who a server says that a client with these names is.
async fn known_as(names: &[&str]) -> Result<Option<String>, TlsFailure> {
    let setting = Setting::new();
    let server = setting.server_certificate();
    let tls = ServerTls::new(ServerTlsFiles {
        cert: server.cert,
        key: server.key,
        client_ca: Some(setting.authority.file()),
    })
    .unwrap();
    let sockets = Descriptors::new(4);
    let listener = listen("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let settings = LinkSettings {
        timeout: Duration::from_secs(10),
        tls: Some(ClientTls::new(setting.showing(&setting.authority.issue("client", names))).unwrap()),
        sockets: sockets.clone(),
    };
    let accepted = async {
        let (stream, _) = listener.accept().await.unwrap();
        Link::accept(Socket::new(stream, &sockets), &tls, Duration::from_secs(10)).await
    };
    let (dialled, accepted) = bounded(async { tokio::join!(Link::dial(&address, &settings), accepted) }).await;
    dialled.unwrap();
    Ok(accepted?.peer_name.map(|name| name.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_is_known_by_the_first_name_that_names_somebody() {
    for (names, known) in [
        (
            &["10.0.0.1", "b.example.com", "a.example.com"][..],
            Some("b.example.com"),
        ),
        (
            &["spiffe://cluster/reader", "a@example.com"],
            Some("spiffe://cluster/reader"),
        ),
        (
            &["a@example.com", "spiffe://cluster/reader", "x.example.com"],
            Some("x.example.com"),
        ),
        (&["10.0.0.1", "a@example.com"], Some("a@example.com")),
        (&["10.0.0.1"], None),
    ] {
        assert_eq!(known_as(names).await.unwrap().as_deref(), known, "{names:?}");
    }
}
