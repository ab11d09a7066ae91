//! Our server with the client of the crate `seastar-rpc`.

use std::time::Duration;

use bytes::Bytes;
use seastar_rpc::rpc::{CallOptions, Client, Compression, Error, StreamConnection, StreamId};

use crate::service::{ADD, BOOM, ECHO, ECHO_STREAM, NOTE, Running, SILENT, WHO};
use crate::{LIMIT, soon};

const OFFERS: [&[Compression]; 3] = [&[], &[Compression::Lz4], &[Compression::Lz4Fragmented]];

async fn connect(running: &Running, offer: &[Compression]) -> Client {
    let builder = Client::builder()
        .default_timeout(LIMIT)
        .isolation_cookie(Bytes::from_static(b"ck"))
        .offer_compression(offer.iter().copied());
    soon(builder.connect(running.address())).await.expect("it negotiates")
}

#[tokio::test]
async fn it_calls_verbs() {
    for offer in OFFERS {
        let mut running = Running::start();
        let client = connect(&running, offer).await;
        assert!(client.connection_id().is_some());
        assert_eq!(
            soon(client.call::<_, i32>(ADD, (3_i32, 4_i32))).await.expect("a sum"),
            7
        );
        let text: String = soon(client.call(ECHO, "hello")).await.expect("an echo");
        assert_eq!(text, "hello");
        let large: Vec<u8> = (0..1_000_000_u32)
            .map(|number| (number.wrapping_mul(number) >> 3) as u8)
            .collect();
        let back = soon(client.call_raw(ECHO, Bytes::from(large.clone()), CallOptions::default()));
        assert_eq!(back.await.expect("an echo"), large);
        let cookie = soon(client.call_raw(WHO, Bytes::new(), CallOptions::default()));
        assert_eq!(cookie.await.expect("its cookie"), &b"ck"[..]);
        match soon(client.call::<_, i32>(BOOM, ())).await {
            Err(Error::Remote(message)) => assert_eq!(message.as_bytes(), b"boom"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            soon(client.call::<_, i32>(99, ())).await,
            Err(Error::UnknownVerb(99))
        ));
        let fire = CallOptions::default().no_wait();
        soon(client.call_with::<_, ()>(NOTE, "fire", fire)).await.expect("sent");
        soon(running.noted.recv()).await.expect("it arrives");
        let sums = soon(client.call_many::<_, i32>(ADD, (0..1_000_i32).map(|number| (number, 1_i32)))).await;
        for (number, sum) in (1..).zip(sums.expect("sent")) {
            assert_eq!(sum.expect("a sum"), number);
        }
        let short = CallOptions::default().timeout(Duration::from_millis(100));
        let silent = soon(client.call_with::<_, i32>(SILENT, (), short)).await;
        assert!(matches!(silent, Err(Error::Timeout)), "{silent:?}");
        drop(client);
        soon(running.server.close()).await;
    }
}

#[tokio::test]
async fn it_has_streams() {
    for offer in OFFERS {
        let running = Running::start();
        let client = connect(&running, offer).await;
        let StreamConnection {
            mut sink,
            mut source,
            id,
            ..
        } = soon(client.open_stream()).await.expect("a stream");
        let back: StreamId = soon(client.call(ECHO_STREAM, id)).await.expect("it takes the stream");
        assert_eq!(back, id);
        let send = async {
            for number in 0..5_000_i32 {
                sink.feed_item(&number).await?;
            }
            sink.flush().await?;
            sink.close().await
        };
        let receive = async {
            let mut count = 0;
            while let Some(number) = source.recv_item::<i32>().await? {
                assert_eq!(number, count);
                count += 1;
            }
            Ok::<_, Error>(count)
        };
        let ((), count) = soon(async { tokio::try_join!(send, receive) })
            .await
            .expect("both directions");
        assert_eq!(count, 5_000);
        drop(client);
        soon(running.server.close()).await;
    }
}
