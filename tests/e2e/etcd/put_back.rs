//! An etcd that is put back from a copy: what was decided since is not undone, and nothing that it does not know is deleted.

use std::time::Duration;

use sbp_client::Client;
use sbp_e2e::clients::contents;
use sbp_e2e::wait::{LIMIT, bounded_by};
use sbp_types::Offset;

use super::drivers::started;
use super::questions::{append, create, names, stream};

/// Waits until a stream of this name is listed.
async fn names_with(client: &Client, name: &str) {
    while !client
        .list_streams(None)
        .await
        .is_ok_and(|streams| streams.iter().any(|stream| stream.name == name))
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_is_put_back_from_a_copy_is_not_followed_and_the_one_of_before_goes_on() {
    bounded_by(LIMIT, async {
        let (mut etcd, mut cluster) = started("put_back", 3);
        let client = cluster.client();
        let kept = create(&client, "kept", 3, 2).await;
        let deleted = create(&client, "deleted", 3, 2).await;
        for number in 0..10 {
            append(&client, kept, format!("record {number}")).await.unwrap();
            append(&client, deleted, format!("record {number}")).await.unwrap();
        }
        etcd.kill(0);
        let copy = etcd.copy(0);
        etcd.start_member(0);
        // What the copy does not know: streams, a deletion, a trim, and a leader that the range servers have followed.
        let mut made = Vec::new();
        for number in 0..10 {
            let id = create(&client, &format!("made_{number}"), 3, 2).await;
            append(&client, id, format!("in {number}")).await.unwrap();
            made.push(id);
        }
        client
            .delete_streams(&[deleted], None)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        client
            .trim_streams(&[(kept, Offset(4))], None)
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        let led = cluster.leader(&cluster.addresses);
        cluster.kill(led);
        append(
            &client,
            create(&client, "of_the_next_leader", 3, 2).await,
            "x".to_owned(),
        )
        .await
        .unwrap();
        cluster.start_again(led);

        etcd.kill(0);
        let newest = etcd.put_back(0, &copy);
        etcd.start_member(0);
        // A driver leads with what the copy knows, once the lease of the one of before is over, and is told by the range
        // servers that it knows too little. It makes no stream, whose number another one may have by now.
        let mut number = 0;
        loop {
            number += 1;
            let wrong = vec![stream(&format!("wrong_{number}"), 3, 2)];
            let Err(error) = client.create_streams(wrong, Some(Duration::from_secs(2))).await else {
                // The leader of before had a moment left.
                continue;
            };
            if error.to_string().contains("put back from an older copy") {
                break;
            }
        }

        etcd.kill(0);
        etcd.put_back(0, &newest);
        etcd.start_member(0);
        names_with(&client, "of_the_next_leader").await;
        let mut expected: Vec<_> = (0..10).map(|number| format!("made_{number}")).collect();
        expected.extend(["kept".to_owned(), "of_the_next_leader".to_owned()]);
        expected.sort();
        assert_eq!(names(&client).await, expected);
        append(&client, kept, "behind it all".to_owned()).await.unwrap();
        let left = contents(&client, kept).await;
        assert_eq!(
            (left.len(), left[0].0, left[6].1.as_str()),
            (7, Offset(4), "behind it all")
        );
        for (number, id) in made.into_iter().enumerate() {
            assert_eq!(contents(&client, id).await, [(Offset(0), format!("in {number}"))]);
        }
    })
    .await;
}
