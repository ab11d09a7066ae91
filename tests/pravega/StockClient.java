import io.pravega.client.ByteStreamClientFactory;
import io.pravega.client.ClientConfig;
import io.pravega.client.EventStreamClientFactory;
import io.pravega.client.admin.ReaderGroupManager;
import io.pravega.client.admin.StreamManager;
import io.pravega.client.byteStream.ByteStreamReader;
import io.pravega.client.byteStream.ByteStreamWriter;
import io.pravega.client.stream.EventRead;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroup;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.RetentionPolicy;
import io.pravega.client.stream.ScalingPolicy;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.StreamConfiguration;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** What Pravega's own client does with a server: java StockClient.java CONTROLLER COMMAND ... Tells what it has done as JSON. */
public final class StockClient {
    private static final long PATIENCE_MS = 120_000;

    private final ClientConfig config;

    private StockClient(String controller) {
        config = ClientConfig.builder().controllerURI(URI.create("tcp://" + controller)).build();
    }

    public static void main(String[] arguments) throws Exception {
        StockClient client = new StockClient(arguments[0]);
        List<String> rest = Arrays.asList(arguments).subList(2, arguments.length);
        switch (arguments[1]) {
            case "admin" -> client.admin();
            case "write" -> client.write(rest.get(0), rest.get(1), number(rest.get(2)), number(rest.get(3)));
            case "read" -> client.read(rest.get(0), rest.get(1), rest.get(2), number(rest.get(3)), number(rest.get(4)));
            case "bytes" -> client.bytes(rest.get(0), rest.get(1));
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        // Threads of the client may still be there.
        System.exit(0);
    }

    private static int number(String text) {
        return Integer.parseInt(text);
    }

    private static void tell(String text) {
        System.out.println(text);
        System.out.flush();
    }

    private static StreamConfiguration fixed(int segments) {
        return StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(segments)).build();
    }

    private void admin() {
        try (StreamManager manager = StreamManager.create(config)) {
            List<Boolean> made = new ArrayList<>(List.of(manager.createScope("jadmin"), manager.createScope("jadmin")));
            StreamConfiguration wanted = StreamConfiguration.builder().scalingPolicy(ScalingPolicy.fixed(2))
                .retentionPolicy(RetentionPolicy.bySizeBytes(1 << 30)).tag("blue").build();
            made.add(manager.createStream("jadmin", "st", wanted));
            made.add(manager.createStream("jadmin", "st", wanted));
            made.add(manager.checkScopeExists("jadmin"));
            made.add(manager.checkStreamExists("jadmin", "st"));
            made.add(manager.checkStreamExists("jadmin", "other"));
            TreeSet<String> scopes = new TreeSet<>();
            manager.listScopes().forEachRemaining(scopes::add);
            TreeSet<String> streams = new TreeSet<>();
            manager.listStreams("jadmin").forEachRemaining(stream -> streams.add(stream.getStreamName()));
            boolean isTold = manager.getStreamTags("jadmin", "st").contains("blue");
            boolean isChanged = manager.updateStream("jadmin", "st", wanted);
            List<Boolean> ended = List.of(manager.sealStream("jadmin", "st"), manager.deleteStream("jadmin", "st"),
                manager.deleteScope("jadmin"));
            tell("{\"made\": " + made + ", \"scopes\": " + texts(scopes) + ", \"streams\": " + texts(streams)
                + ", \"changed\": " + List.of(isTold, isChanged) + ", \"ended\": " + ended + "}");
        }
    }

    private static String texts(Iterable<String> all) {
        return "[\"" + String.join("\", \"", all) + "\"]";
    }

    private void write(String scope, String stream, int segments, int count) throws Exception {
        try (StreamManager manager = StreamManager.create(config)) {
            manager.createScope(scope);
            manager.createStream(scope, stream, fixed(segments));
        }
        try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config);
             EventStreamWriter<String> writer = factory.createEventWriter(stream, new UTF8StringSerializer(),
                 EventWriterConfig.builder().build())) {
            List<CompletableFuture<Void>> stored = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                stored.add(writer.writeEvent("key-" + number % 5, number % 5 + ":" + number));
                if (number % 100 == 99) {
                    for (CompletableFuture<Void> each : stored) {
                        each.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
                    }
                    stored.clear();
                    tell("{\"stored\": " + (number + 1) + "}");
                }
            }
            writer.flush();
            tell("{\"stored\": " + count + "}");
        }
    }

    private void read(String scope, String stream, String group, int count, int readers) throws Exception {
        try (ReaderGroupManager groups = ReaderGroupManager.withScope(scope, config)) {
            groups.createReaderGroup(group, ReaderGroupConfig.builder().stream(Stream.of(scope, stream))
                .groupRefreshTimeMillis(1_000).build());
            List<String> seen = new ArrayList<>();
            try (EventStreamClientFactory factory = EventStreamClientFactory.withScope(scope, config)) {
                List<EventStreamReader<String>> all = new ArrayList<>();
                for (int number = 0; number < readers; number++) {
                    all.add(factory.createReader("reader-" + number, group, new UTF8StringSerializer(),
                        ReaderConfig.builder().build()));
                }
                long limit = System.currentTimeMillis() + PATIENCE_MS;
                while (seen.size() < count && System.currentTimeMillis() < limit) {
                    for (EventStreamReader<String> reader : all) {
                        EventRead<String> event = reader.readNextEvent(all.size() == 1 ? 1_000 : 50);
                        if (event.getEvent() != null) {
                            seen.add(event.getEvent());
                        }
                    }
                }
                all.forEach(EventStreamReader::close);
            }
            ReaderGroup read = groups.getReaderGroup(group);
            int online = read.getOnlineReaders().size();
            read.close();
            groups.deleteReaderGroup(group);
            tell("{\"events\": " + texts(seen) + ", \"online\": " + online + "}");
        }
    }

    private void bytes(String scope, String stream) throws Exception {
        try (StreamManager manager = StreamManager.create(config)) {
            manager.createScope(scope);
            manager.createStream(scope, stream, fixed(1));
        }
        byte[] data = new byte[102_400];
        for (int place = 0; place < data.length; place++) {
            data[place] = (byte) place;
        }
        try (ByteStreamClientFactory factory = ByteStreamClientFactory.withScope(scope, config)) {
            long tail;
            try (ByteStreamWriter writer = factory.createByteStreamWriter(stream)) {
                for (int start = 0; start < data.length; start += 10_000) {
                    writer.write(data, start, Math.min(10_000, data.length - start));
                }
                writer.flush();
                tail = writer.fetchTailOffset();
                writer.truncateDataBefore(50_001);
            }
            try (ByteStreamReader reader = factory.createByteStreamReader(stream)) {
                long head = reader.fetchHeadOffset();
                List<Boolean> same = new ArrayList<>();
                for (int[] part : new int[][] {{50_001, 52_399}, {60_000, 10_000}, {102_397, 3}}) {
                    reader.seekToOffset(part[0]);
                    byte[] got = new byte[part[1]];
                    // To read no bytes waits for the next ones, so no more is read than there is.
                    for (int read = 0; read < got.length; ) {
                        read += reader.read(got, read, got.length - read);
                    }
                    same.add(Arrays.equals(got, Arrays.copyOfRange(data, part[0], part[0] + part[1])));
                }
                tell("{\"same\": " + same + ", \"tail\": " + tail + ", \"head\": " + head + "}");
            }
        }
    }
}
