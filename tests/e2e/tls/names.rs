//! Names by certificate: who has one that the file of names knows is that name, by no token.

use sbp_client::{AppendOptions, Client, ClientError};
use sbp_e2e::access::Names;
use sbp_e2e::batches::records;
use sbp_e2e::clients::{contents, stream_ids};
use sbp_e2e::wait::bounded;
use sbp_server::{AccessConfig, Server};
use sbp_types::StreamId;

use crate::setting::{CLIENT, Setting, client, says};

/// A server that asks for certificates, and goes by the names in them.
fn server(setting: &Setting, names: &Names) -> Server {
    let ca = setting.authority.file();
    setting.server_with(&setting.server_certificate(), |config| {
        config.tls.as_mut().unwrap().client_ca = Some(ca);
        config.access = Some(AccessConfig {
            file: names.path(),
            jwt: None,
        });
    })
}

/// Adds a name that a certificate shows.
fn add(names: &Names, name: &str, certificate: &str, allow: &[&str]) {
    names.add_with(name, allow, |entry| {
        entry.sha256 = None;
        entry.certificate = Some(certificate.to_owned());
    });
}

/// A client that shows a certificate for these names.
fn showing(setting: &Setting, server: &Server, file: &str, names: &[&str]) -> Client {
    let issued = setting.authority.issue(file, names);
    client(server.address(), Some(setting.showing(&issued))).unwrap()
}

async fn append(client: &Client, stream: StreamId) -> Result<(), ClientError> {
    bounded(client.append(stream, records(["x"]), &AppendOptions::default()))
        .await
        .map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_certificates_first_name_has_its_grants_and_no_others() {
    let (setting, names) = (Setting::new(), Names::default());
    add(&names, "root", "root.example.com", &["read:*", "write:*", "admin:*"]);
    add(&names, "reader", CLIENT, &["read:orders"]);
    let server = server(&setting, &names);
    let root = showing(&setting, &server, "root", &["root.example.com"]);
    let ids = stream_ids(&root, &["orders", "secret"]).await;
    append(&root, ids[0]).await.unwrap();

    // The first name counts: the second one would be root's.
    let reader = showing(&setting, &server, "reader", &[CLIENT, "root.example.com"]);
    assert_eq!(bounded(contents(&reader, ids[0])).await.len(), 1);
    let listed = reader.list_streams(None).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(listed, ["orders"]);
    let refused = append(&reader, ids[0]).await.unwrap_err();
    assert_eq!(refused.code().0, 1403, "{refused}");
    says(&refused, &["reader may not append", "the grant write"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_certificate_of_no_known_name_is_refused_with_what_to_do() {
    let (setting, names) = (Setting::new(), Names::default());
    add(&names, "reader", CLIENT, &["read:*"]);
    let server = server(&setting, &names);
    for (file, shown) in [
        ("other", &["other.example.com", CLIENT][..]),
        ("nameless", &["10.0.0.1"]),
    ] {
        let other = showing(&setting, &server, file, shown);
        let refused = bounded(other.list_streams(None)).await.unwrap_err();
        assert_eq!(refused.code().0, 1401, "{refused}");
        assert!(!refused.is_retriable(), "{refused}");
        says(&refused, &["token"]);
        if file == "other" {
            says(
                &refused,
                &["\"other.example.com\"", "sbp token create", "--certificate"],
            );
        }
    }
}
