//! Bytes of real peers: decoded, encoded to the same bytes, and the same however they are cut.

use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use sbp_tank::{
    Answer, Bundle, Call, ClientConfig, Connection, ConsumedFrom, ConsumedTopic, Consumption, Discovered, Event,
    Numbering, PartitionBounds, PartitionState, Produce, Produced, ProducedTo, Request, ServerConfig, Topic,
    TopicSummary,
};
use sbp_wire::Endpoint;
use sbp_wire::testing::{events, every_split, receive, transmitted};

/// What one side said.
struct Step {
    is_clients: bool,
    bytes: Vec<u8>,
}

fn steps(name: &str) -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    let text = std::fs::read_to_string(path).expect("a file of vectors");
    let lines = text.lines().map(|line| {
        let (side, bytes) = line.split_once(' ').expect("a side and bytes");
        Step {
            is_clients: side == ">",
            bytes: hex::decode(bytes).expect("hexadecimal"),
        }
    });
    lines.collect()
}

fn clients(name: &str) -> Vec<Vec<u8>> {
    let ours = steps(name).into_iter().filter(|step| step.is_clients);
    ours.map(|step| step.bytes).collect()
}

fn servers(name: &str) -> Vec<Vec<u8>> {
    let theirs = steps(name).into_iter().filter(|step| !step.is_clients);
    theirs.map(|step| step.bytes).collect()
}

fn greeting() -> Vec<u8> {
    servers("greeting.hex").remove(0)
}

/// What a client that has sent `requests` learns from `bytes`, in every way in which they may arrive.
fn heard(requests: &[Request], bytes: &[u8]) -> Vec<Event> {
    every_split(bytes, |pieces| {
        let now = Instant::now();
        let mut client = Connection::client(ClientConfig::default(), now);
        receive(&mut client, &greeting(), now);
        for (user, request) in requests.iter().enumerate() {
            client.send(request, user as u64, now).expect("it fits");
        }
        transmitted(&mut client, now);
        let mut heard = Vec::new();
        for piece in pieces {
            receive(&mut client, piece, now);
            heard.extend(events(&mut client));
        }
        assert!(!client.is_mid_frame(), "nothing is left over");
        assert_eq!(client.own_calls(), 0, "all is answered");
        assert_eq!(heard.remove(0), Event::Greeted);
        heard
    })
}

/// What a server is asked by `bytes`, in every way in which they may arrive.
fn asked(bytes: &[u8]) -> Vec<(Call, Request)> {
    every_split(bytes, |pieces| {
        let now = Instant::now();
        let mut server = Connection::server(ServerConfig::default(), now);
        let mut asked = Vec::new();
        for piece in pieces {
            receive(&mut server, piece, now);
            asked.extend(events(&mut server).into_iter().map(|event| match event {
                Event::Request { call, request } => (call, request),
                other => panic!("{other:?}"),
            }));
        }
        assert!(!server.is_mid_frame(), "nothing is left over");
        asked
    })
}

/// What a server that was asked `request` writes for `answer`.
fn said(request: &[u8], answer: &Answer) -> Vec<u8> {
    let now = Instant::now();
    let mut server = Connection::server(ServerConfig::default(), now);
    assert_eq!(transmitted(&mut server, now), greeting());
    receive(&mut server, request, now);
    match events(&mut server).as_slice() {
        [Event::Request { call, .. }] => server.answer(*call, answer, now).expect("it fits"),
        other => panic!("{other:?}"),
    }
    transmitted(&mut server, now)
}

/// The one request that `bytes` are, and the one answer.
fn exchange(name: &str, place: usize) -> (Vec<u8>, Request, Answer) {
    let request = clients(name).remove(place);
    let [(_, parsed)] = asked(&request).try_into().expect("one request");
    let answer = servers(name).remove(place);
    match heard(std::slice::from_ref(&parsed), &answer).as_slice() {
        [Event::Answered { user: 0, answer: told }] => {
            let told = told.clone();
            (answer, parsed, told)
        }
        other => panic!("{other:?}"),
    }
}

fn demo<T>(partitions: Vec<T>) -> Vec<Topic<T>> {
    vec![Topic {
        name: String::from("demo"),
        partitions,
    }]
}

/// Our request with id 1 is that of the real client, but for the name that it gives itself.
fn is_as_written(request: &Request, bytes: &[u8]) {
    let now = Instant::now();
    let mut client = Connection::client(ClientConfig::default(), now);
    client.send(request, 0, now).expect("it fits");
    let ours = transmitted(&mut client, now);
    let [(_, again)] = asked(&ours).try_into().expect("one request");
    assert_eq!(again, *request);
    if !matches!(request, Request::Produce(_) | Request::Consume { .. }) {
        assert_eq!(ours, bytes);
    }
}

#[test]
fn a_broker_greets_with_a_ping() {
    let now = Instant::now();
    let told = every_split(&greeting(), |pieces| {
        let mut client = Connection::client(ClientConfig::default(), now);
        for piece in pieces {
            receive(&mut client, piece, now);
        }
        events(&mut client)
    });
    assert_eq!(told, [Event::Greeted]);
    let mut server = Connection::server(ServerConfig::default(), now);
    assert_eq!(transmitted(&mut server, now), greeting());
}

#[test]
fn a_topic_is_created() {
    let (bytes, request, answer) = exchange("create.hex", 0);
    let expected = Request::CreateTopic {
        topic: String::from("demo"),
        partitions: 2,
        config: Bytes::new(),
    };
    assert_eq!(request, expected);
    let topic = String::from("demo");
    assert_eq!(answer, Answer::Created { topic, code: 0 });
    let asked = clients("create.hex").remove(0);
    is_as_written(&request, &asked);
    assert_eq!(said(&asked, &answer), bytes);
}

#[test]
fn broker_and_topics_are_described() {
    let (_, request, answer) = exchange("discover.hex", 0);
    assert_eq!(request, Request::Status);
    let expected = Answer::Status {
        topics: 1,
        partitions: 2,
        version: 400,
    };
    assert_eq!(answer, expected);
    let (bytes, request, answer) = exchange("discover.hex", 1);
    assert_eq!(request, Request::DiscoverTopics);
    let demo = TopicSummary {
        name: String::from("demo"),
        is_enabled: true,
        partitions: 2,
    };
    assert_eq!(answer, Answer::Topics(vec![demo]));
    let asked = clients("discover.hex").remove(1);
    is_as_written(&request, &asked);
    assert_eq!(said(&asked, &answer), bytes);
}

#[test]
fn partitions_and_brokers_are_told() {
    let (bytes, request, answer) = exchange("partitions.hex", 0);
    let topic = String::from("demo");
    assert_eq!(request, Request::DiscoverPartitions { topic: topic.clone() });
    let empty = Discovered::Here(PartitionBounds {
        first: 0,
        high_water: 0,
    });
    let partitions = vec![empty; 2];
    assert_eq!(answer, Answer::Partitions { topic, partitions });
    let asked = clients("partitions.hex").remove(0);
    is_as_written(&request, &asked);
    assert_eq!(said(&asked, &answer), bytes);
    let (bytes, request, answer) = exchange("partitions.hex", 1);
    assert_eq!(
        (&request, &answer),
        (&Request::Topology, &Answer::Topology { is_alone: true })
    );
    assert_eq!(said(&clients("partitions.hex").remove(1), &answer), bytes);
}

/// What each message of the bundles is, the first with number `first`: number, key and content.
fn messages(bundles: &[Bytes], base: Option<u64>) -> Vec<(u64, Option<Vec<u8>>, Vec<u8>)> {
    let mut numbering = Numbering::new(base);
    let mut all = Vec::new();
    for bytes in bundles {
        let bundle = Bundle::decode(bytes).expect("a bundle");
        let span = numbering.number(&bundle).expect("numbers");
        for message in bundle.messages(span.first) {
            let message = message.expect("a message");
            assert_eq!(message.time_ms / 10_000_000_000, 179, "the time of the capture");
            all.push((message.sequence, message.key.map(Vec::from), message.content.to_vec()));
        }
    }
    all
}

fn plain(sequence: u64, content: &str) -> (u64, Option<Vec<u8>>, Vec<u8>) {
    (sequence, None, content.into())
}

fn keyed(sequence: u64) -> (u64, Option<Vec<u8>>, Vec<u8>) {
    (sequence, Some(b"k1".to_vec()), b"v1".to_vec())
}

/// The one bundle of a Produce to `demo/0`.
fn produced(bytes: &[u8]) -> (Request, Bytes) {
    let [(_, request)] = asked(bytes).try_into().expect("one request");
    let Request::Produce(produce) = &request else {
        panic!("{request:?}")
    };
    let [topic] = produce.topics.as_slice() else {
        panic!("{produce:?}")
    };
    let [to] = topic.partitions.as_slice() else {
        panic!("{produce:?}")
    };
    assert_eq!((topic.name.as_str(), to.partition), ("demo", 0));
    let bundle = to.bundle.clone();
    is_as_written(&request, bytes);
    (request, bundle)
}

#[test]
fn messages_are_produced() {
    let (request, hello) = produced(&clients("produce.hex")[0]);
    assert_eq!(messages(&[hello], Some(1)), [plain(1, "hello")]);
    let answer = servers("produce.hex").remove(0);
    let done = Answer::Produced(vec![vec![Produced::Done]]);
    let expected = Event::Answered {
        user: 0,
        answer: done.clone(),
    };
    assert_eq!(heard(&[request], &answer), [expected]);
    assert_eq!(said(&clients("produce.hex")[0], &done), answer);
    let (_, three) = produced(&clients("produce.hex")[1]);
    assert_eq!(
        messages(&[three], Some(2)),
        [plain(2, "a"), plain(3, "bb"), plain(4, "ccc")]
    );
    let (_, with_key) = produced(&clients("produce-key.hex")[0]);
    assert_eq!(messages(&[with_key], Some(5)), [keyed(5)]);
}

/// The partitions of an answer to Consume, and the bundles of the first.
fn consumed(events: &[Event]) -> (&[sbp_tank::ConsumedPartition], Vec<Bytes>) {
    let [
        Event::Consumed { partitions, .. },
        between @ ..,
        Event::ConsumeEnded { user: 0 },
    ] = events
    else {
        panic!("{events:?}")
    };
    let bundles = between.iter().map(|event| match event {
        Event::Bundle {
            user: 0,
            place: 0,
            bundle,
        } => bundle.clone(),
        other => panic!("{other:?}"),
    });
    (partitions, bundles.collect())
}

#[test]
fn messages_are_consumed() {
    let asked_for = clients("consume.hex").remove(0);
    let [(_, request)] = asked(&asked_for).try_into().expect("one request");
    let from = ConsumedFrom {
        partition: 0,
        sequence: 0,
        fetch_size: 0x0800_0000,
    };
    let expected = Request::Consume {
        topics: demo(vec![from]),
        wait_ms: 0,
        min_bytes: 0,
    };
    assert_eq!(request, expected);
    is_as_written(&request, &asked_for);
    let answer = servers("consume.hex").remove(0);
    let heard = heard(std::slice::from_ref(&request), &answer);
    let (partitions, bundles) = consumed(&heard);
    let state = PartitionState::Data {
        base: Some(1),
        high_water: 5,
        length: 56,
    };
    assert_eq!((partitions[0].partition, partitions[0].state), (Some(0), state));
    let expected = [
        plain(1, "hello"),
        plain(2, "a"),
        plain(3, "bb"),
        plain(4, "ccc"),
        keyed(5),
    ];
    assert_eq!(messages(&bundles, Some(1)), expected);
    // Our broker writes the same, given the bundles as they lie on its disk.
    let chunk = Bytes::copy_from_slice(&answer[answer.len() - 56..]);
    let ours = Answer::Consumed(vec![ConsumedTopic {
        name: String::from("demo"),
        partitions: vec![Consumption {
            partition: 0,
            state,
            bundles: vec![chunk],
        }],
    }]);
    assert_eq!(said(&asked_for, &ours), answer);
}

fn consume(partition: u16, sequence: u64) -> Request {
    Request::Consume {
        topics: demo(vec![ConsumedFrom {
            partition,
            sequence,
            fetch_size: 1 << 20,
        }]),
        wait_ms: 0,
        min_bytes: 0,
    }
}

#[test]
fn a_sparse_bundle_says_where_it_begins() {
    let heard = heard(&[consume(1, 50)], &servers("sparse.hex")[0]);
    let (partitions, bundles) = consumed(&heard);
    let state = PartitionState::Data {
        base: None,
        high_water: 100,
        length: 30,
    };
    assert_eq!((partitions[0].partition, partitions[0].state), (Some(1), state));
    assert_eq!(messages(&bundles, None), [plain(100, "sparse-one")]);
}

#[test]
fn one_code_stands_for_a_topic_that_there_is_not() {
    let to = |partition| ProducedTo {
        partition,
        first: 0,
        bundle: Bytes::from_static(&[0x04, 2, 0]),
    };
    let request = Request::Produce(Produce {
        topics: demo(vec![to(0), to(1), to(7)]),
        is_numbered: false,
        acks: 0,
        ack_timeout_ms: 0,
    });
    let answer = servers("faults.hex").remove(0);
    let unknown = Answer::Produced(vec![vec![Produced::UnknownTopic; 3]]);
    let expected = Event::Answered {
        user: 0,
        answer: unknown.clone(),
    };
    assert_eq!(heard(std::slice::from_ref(&request), &answer), [expected]);
    let now = Instant::now();
    let mut client = Connection::client(ClientConfig::default(), now);
    client.send(&request, 0, now).expect("it fits");
    assert_eq!(said(&transmitted(&mut client, now), &unknown), answer);
}

#[test]
fn a_position_out_of_bounds_comes_with_the_bounds() {
    let heard = heard(&[consume(0, 900)], &servers("faults.hex")[1]);
    let (partitions, bundles) = consumed(&heard);
    let expected = PartitionState::OutOfBounds {
        high_water: 5,
        first_available: 1,
    };
    assert_eq!(partitions[0].state, expected);
    assert!(bundles.is_empty());
}
