//! Tables, as their frames are.

use sbp_e2e::clients::client;
use sbp_e2e::servers;

use super::pravega;
use super::raw::{Answer, NEW, Raw, int, long, text};

const TABLE: &str = "sc/map_kvtable/0.#epoch.0";
const MISSING: i64 = -1;

fn key(name: &[u8], version: i64) -> Vec<u8> {
    let tail = if name.is_empty() {
        Vec::new()
    } else {
        long(version).to_vec()
    };
    [&int(4 + name.len() + tail.len())[..], &int(name.len()), name, &tail].concat()
}

fn value(value: &[u8]) -> Vec<u8> {
    [&int(4 + value.len())[..], &int(value.len()), value].concat()
}

/// What begins with the request's id, the table and a token, and has this behind.
fn request(behind: &[&[u8]]) -> Vec<u8> {
    [&long(8)[..], &text(TABLE), &text(""), &behind.concat()].concat()
}

impl Raw {
    async fn create_table(&mut self) -> i32 {
        self.ask(70, &request(&[&[0], &int(0), &long(0)])).await.kind
    }

    /// Puts entries: the versions, or the kind of the refusal.
    async fn put(&mut self, entries: &[(&str, i64, &str)]) -> Result<Vec<i64>, i32> {
        let each = entries
            .iter()
            .flat_map(|(name, version, content)| [key(name.as_bytes(), *version), value(content.as_bytes())]);
        let each: Vec<_> = each.collect();
        let payload = request(&[&int(entries.len()), &each.concat(), &long(-1)]);
        let mut answer = self.ask(74, &payload).await;
        assert_eq!(answer.long(), 8);
        if answer.kind != 75 {
            return Err(answer.kind);
        }
        let count = answer.int();
        Ok((0..count).map(|_| answer.long()).collect())
    }

    async fn remove(&mut self, keys: &[(&str, i64)]) -> i32 {
        let each: Vec<_> = keys
            .iter()
            .map(|(name, version)| key(name.as_bytes(), *version))
            .collect();
        let payload = request(&[&int(keys.len()), &each.concat(), &long(-1)]);
        self.ask(76, &payload).await.kind
    }

    async fn get(&mut self, names: &[&str]) -> Vec<(String, i64, String)> {
        let each: Vec<_> = names.iter().map(|name| key(name.as_bytes(), NEW)).collect();
        let mut answer = self.ask(78, &request(&[&int(names.len()), &each.concat()])).await;
        assert_eq!((answer.kind, answer.long(), answer.text()), (79, 8, TABLE.to_owned()));
        entries(&mut answer)
    }

    /// All entries, in pages of two.
    async fn pages(&mut self) -> Vec<Vec<(String, i64, String)>> {
        let mut pages = Vec::new();
        let mut continuation = Vec::new();
        loop {
            let page = request(&[
                &int(2),
                &int(continuation.len()),
                &continuation,
                &int(0),
                &int(0),
                &int(0),
            ]);
            let mut answer = self.ask(85, &page).await;
            assert_eq!((answer.kind, answer.long(), answer.text()), (86, 8, TABLE.to_owned()));
            let entries = entries(&mut answer);
            let length = usize::try_from(answer.int()).unwrap();
            continuation = answer.bytes(length);
            if entries.is_empty() {
                return pages;
            }
            pages.push(entries);
        }
    }

    /// What has changed from an update on: the entries, whether all before is void, whether that is all, and where it goes on.
    async fn delta(&mut self, from: i64, most: usize) -> (Vec<(String, i64, String)>, bool, bool, i64) {
        let mut answer = self.ask(88, &request(&[&long(from), &int(most)])).await;
        assert_eq!((answer.kind, answer.long(), answer.text()), (87, 8, TABLE.to_owned()));
        let entries = entries(&mut answer);
        (entries, answer.bool(), answer.bool(), answer.long())
    }
}

fn entries(answer: &mut Answer) -> Vec<(String, i64, String)> {
    let count = answer.int();
    let sized = |answer: &mut Answer| {
        let length = usize::try_from(answer.int()).unwrap();
        String::from_utf8(answer.bytes(length)).unwrap()
    };
    let read = |_| {
        let rest = answer.int();
        let name = sized(answer);
        let version = if rest > 4 + i32::try_from(name.len()).unwrap() {
            answer.long()
        } else {
            NEW
        };
        answer.int();
        (name, version, sized(answer))
    };
    (0..count).map(read).collect()
}

fn entry(name: &str, version: i64, value: &str) -> (String, i64, String) {
    (name.to_owned(), version, value.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_put_by_their_versions_and_read_by_any_gateway() {
    let server = servers::start(None);
    let client = client(server.address());
    let (first, second) = (pravega(&client), pravega(&client));
    let mut raw = Raw::connect(first.address()).await;
    let mut other = Raw::connect(second.address()).await;
    assert_eq!(raw.create_table().await, 21);
    assert_eq!(other.create_table().await, 52);
    assert_eq!(raw.put(&[("a", NEW, "1"), ("b", MISSING, "2")]).await, Ok(vec![0, 1]));
    assert_eq!(other.put(&[("c", MISSING, "3"), ("a", 0, "4")]).await, Ok(vec![2, 3]));
    // What has another version, or is missing, has nothing done.
    for (entries, refusal) in [
        ([("d", NEW, "x"), ("a", 0, "x")], 82),
        ([("d", NEW, "x"), ("b", MISSING, "x")], 82),
        ([("d", NEW, "x"), ("e", 7, "x")], 81),
    ] {
        assert_eq!(raw.put(&entries).await, Err(refusal));
    }
    assert_eq!(raw.put(&[]).await, Ok(Vec::new()));
    let expected = [entry("a", 3, "4"), entry("d", MISSING, ""), entry("b", 1, "2")];
    assert_eq!(raw.get(&["a", "d", "b"]).await, expected);
    let pages = [vec![entry("a", 3, "4"), entry("b", 1, "2")], vec![entry("c", 2, "3")]];
    assert_eq!(other.pages().await, pages);
    for (keys, answer) in [(&[("a", 1)][..], 82), (&[("x", 1)], 81), (&[("b", 1), ("x", NEW)], 77)] {
        assert_eq!(raw.remove(keys).await, answer);
    }
    assert_eq!(other.get(&["b"]).await, [entry("b", MISSING, "")]);
    // Changes in their order; those that took keys out are not told.
    let (changes, is_cleared, is_end, last) = other.delta(0, 3).await;
    assert_eq!(changes, [entry("a", 0, "1"), entry("b", 1, "2"), entry("c", 2, "3")]);
    assert_eq!((is_cleared, is_end, last), (false, false, 3));
    let (changes, is_cleared, is_end, last) = raw.delta(3, 100).await;
    assert_eq!((changes, is_cleared, is_end), (vec![entry("a", 3, "4")], false, true));
    assert_eq!(raw.delta(last, 100).await, (Vec::new(), false, true, last));
    // Segments for bytes are none, and tables no segments for bytes.
    assert_eq!(raw.truncate(TABLE, 0).await, 53);
    let deleting = |must_be_empty: u8| [&long(9)[..], &text(TABLE), &[must_be_empty], &text("")].concat();
    assert_eq!(raw.ask(71, &deleting(1)).await.kind, 80);
    assert_eq!(raw.ask(71, &deleting(0)).await.kind, 31);
    assert_eq!(raw.ask(71, &deleting(0)).await.kind, 53);
    assert_eq!(raw.put(&[("a", NEW, "1")]).await, Err(53));
    first.close().await;
    second.close().await;
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_count_up_together_and_lose_no_step() {
    let server = servers::start(None);
    let client = client(server.address());
    let gateways = [pravega(&client), pravega(&client)];
    let mut raw = Raw::connect(gateways[0].address()).await;
    assert_eq!(raw.create_table().await, 21);
    assert_eq!(raw.put(&[("n", NEW, "0")]).await, Ok(vec![0]));
    let count = |place: usize| {
        let address = gateways[place].address();
        async move {
            let mut raw = Raw::connect(address).await;
            let mut steps = 0;
            while steps < 25 {
                let found = raw.get(&["n"]).await;
                let (_, version, number) = &found[0];
                let next = (number.parse::<u32>().unwrap() + 1).to_string();
                match raw.put(&[("n", *version, &next)]).await {
                    Ok(_) => steps += 1,
                    Err(refusal) => assert_eq!(refusal, 82),
                }
            }
        }
    };
    tokio::join!(count(0), count(1), count(0), count(1));
    assert_eq!(raw.get(&["n"]).await[0].2, "100");
    for gateway in gateways {
        gateway.close().await;
    }
    client.close().await;
    server.shutdown().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_mostly_outdated_is_written_again_and_trimmed() {
    let server = servers::start(None);
    let client = client(server.address());
    let (first, second) = (pravega(&client), pravega(&client));
    let mut raw = Raw::connect(first.address()).await;
    assert_eq!(raw.create_table().await, 21);
    assert_eq!(raw.put(&[("kept", NEW, "1")]).await, Ok(vec![0]));
    let large = "x".repeat(1 << 20);
    for round in 1..=10 {
        assert_eq!(
            raw.put(&[("n", NEW, &large)]).await.map(|versions| versions.len()),
            Ok(1),
            "{round}"
        );
    }
    let stream = client.find_stream("sc/map_kvtable/0", None).await.unwrap().stream_id;
    let held = client.positions(&[stream], None).await.unwrap().remove(0).unwrap();
    assert!(held.earliest.0 > 0, "what is outdated was trimmed: {held:?}");
    let mut other = Raw::connect(second.address()).await;
    for each in [&mut raw, &mut other] {
        let found = each.get(&["kept", "n"]).await;
        assert_eq!(found[0], entry("kept", 0, "1"), "versions stay");
        assert_eq!(found[1].2.len(), 1 << 20);
        let (changes, is_cleared, ..) = each.delta(1, 100).await;
        assert!(is_cleared && changes.contains(&entry("kept", 0, "1")));
    }
    first.close().await;
    second.close().await;
    client.close().await;
    server.shutdown().unwrap();
}
