import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Has Apache Kafka's own classes write the batches that test_golden_batches.py reads, one "name hex" a line.
 *
 * With the jars of kafka-clients 4.3 and of its codecs in one folder:
 *   java -cp "$JARS/*" WriteBatches.java > java_batches.txt
 */
public class WriteBatches {
    static final long BASE_OFFSET = 42;
    static final long TIME = 1_600_000_000_000L;
    static final Header[] NO_HEADERS = new Header[0];

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void print(String name, ByteBuffer buffer) {
        byte[] out = new byte[buffer.remaining()];
        buffer.duplicate().get(out);
        System.out.println(name + " " + HexFormat.of().formatHex(out));
    }

    static MemoryRecordsBuilder builder(int magic, String codec, TimestampType type, long appendTime) {
        boolean v2 = magic == 2;
        return MemoryRecords.builder(ByteBuffer.allocate(1024), (byte) magic, Compression.of(codec).build(), type,
            BASE_OFFSET, appendTime, v2 ? 1000L : -1L, (short) (v2 ? 3 : -1), v2 ? 2147483646 : -1, v2, v2 ? 7 : -1);
    }

    static void append(MemoryRecordsBuilder builder, boolean withHeaders) {
        Header[] headers = !withHeaders ? NO_HEADERS : new Header[] {
            new RecordHeader("trace", new byte[] {0, 1}),
            new RecordHeader("empty", new byte[0]),
            new RecordHeader("none", (byte[]) null),
            new RecordHeader("поток", bytes("вода")),
        };
        builder.append(TIME, bytes("k0"), bytes("v0"), NO_HEADERS);
        builder.append(TIME + 5, null, bytes("value"), headers);
        builder.append(TIME - 3, bytes(""), null, NO_HEADERS);
        builder.append(TIME + 1_000_000, bytes("k3"), bytes("water ".repeat(50)), NO_HEADERS);
    }

    public static void main(String[] arguments) {
        for (int magic = 0; magic <= 2; magic++) {
            for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
                if (magic < 2 && codec.equals("zstd"))
                    continue;
                TimestampType created = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
                MemoryRecordsBuilder small = builder(magic, codec, created, RecordBatch.NO_TIMESTAMP);
                append(small, magic == 2);
                print("v" + magic + "-" + codec, small.build().buffer());
                if (codec.equals("none") || magic == 1 || (magic == 0 && !codec.equals("lz4")))
                    continue;
                // more than one block of every codec
                MemoryRecordsBuilder large = builder(magic, codec, created, RecordBatch.NO_TIMESTAMP);
                large.append(TIME, null, bytes("headrace ".repeat(16_000)), NO_HEADERS);
                print("v" + magic + "-" + codec + "-large", large.build().buffer());
            }
            if (magic > 0) {
                MemoryRecordsBuilder appended = builder(magic, "gzip", TimestampType.LOG_APPEND_TIME, TIME + 77);
                append(appended, magic == 2);
                print("v" + magic + "-gzip-append-time", appended.build().buffer());
            }
        }
        EndTransactionMarker marker = new EndTransactionMarker(ControlRecordType.COMMIT, 9);
        print("v2-commit-marker", MemoryRecords.withEndTransactionMarker(BASE_OFFSET, TIME, 7, 1000L, (short) 3, marker).buffer());
        ByteBuffer empty = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(empty, (byte) 2, 1000L, (short) 3, 5, BASE_OFFSET, BASE_OFFSET + 9, 7,
            TimestampType.CREATE_TIME, TIME, true, false);
        empty.rewind();
        print("v2-compacted-away", empty);
    }
}
