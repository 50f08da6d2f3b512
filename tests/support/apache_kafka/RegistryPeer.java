import io.confluent.kafka.schemaregistry.avro.AvroSchema;
import io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.SchemaMetadata;
import io.confluent.kafka.schemaregistry.client.SchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericContainer;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.io.JsonEncoder;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * A program with Confluent's Java serializers: carries out the commands on its stdin, one per line, and answers each
 * with one line. The fields of both are separated by tabs.
 */
public class RegistryPeer {
    private final String brokers;
    private final String registry;
    private final SchemaRegistryClient client;

    RegistryPeer(String brokers, String registry) {
        this.brokers = brokers;
        this.registry = registry;
        this.client = new CachedSchemaRegistryClient(registry, 100);
    }

    public static void main(String[] args) throws Exception {
        RegistryPeer peer = new RegistryPeer(args[0], args[1]);
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            String answer;
            try {
                answer = peer.answer(fields[0], Arrays.copyOfRange(fields, 1, fields.length));
            } catch (Exception failed) {
                answer = peer.error(failed);
            }
            out.println(answer.replace("\n", " "));
        }
    }

    private String error(Throwable failed) {
        for (Throwable each = failed; each != null; each = each.getCause()) {
            if (each instanceof RestClientException) {
                RestClientException rest = (RestClientException) each;
                return "error\t" + rest.getStatus() + "\t" + rest.getErrorCode() + "\t" + rest.getMessage();
            }
        }
        return "error\t" + failed;
    }

    private String answer(String command, String[] of) throws Exception {
        switch (command) {
            case "send":
                return send(of[0], of[1], of[2], of[3]);
            case "read":
                return read(of[0]);
            case "register":
                return "" + client.register(of[0], parsed(of[1], Arrays.copyOfRange(of, 2, of.length)));
            case "id":
                return "" + client.getId(of[0], parsed(of[1]));
            case "version":
                return "" + client.getVersion(of[0], parsed(of[1]));
            case "schema":
                return client.getSchemaById(Integer.parseInt(of[0])).canonicalString();
            case "latest":
                SchemaMetadata latest = client.getLatestSchemaMetadata(of[0]);
                return latest.getId() + "\t" + latest.getVersion() + "\t" + latest.getSchemaType();
            case "compatible":
                return "" + client.testCompatibility(of[0], parsed(of[1]));
            case "why":
                return "" + client.testCompatibilityVerbose(of[0], parsed(of[1])).size();
            case "subjects":
                return String.join("\t", client.getAllSubjects());
            case "subjects-of":
                return String.join("\t", client.getAllSubjectsById(Integer.parseInt(of[0])));
            case "versions":
                return client.getAllVersions(of[0]).toString();
            case "set-compatibility":
                return client.updateCompatibility(of[0], of[1]) + "\t" + client.getCompatibility(of[0]);
            case "set-mode":
                return client.setMode(of[1], of[0]) + "\t" + client.getMode(of[0]);
            case "delete-version":
                return "" + client.deleteSchemaVersion(of[0], of[1]);
            case "delete":
                return client.deleteSubject(of[0]) + "\t" + client.deleteSubject(of[0], true);
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    /** A schema, after "subject:version:name" of those that it refers to. */
    private AvroSchema parsed(String schema, String... references) throws Exception {
        List<SchemaReference> refers = new ArrayList<>();
        Map<String, String> resolved = new HashMap<>();
        for (String each : references) {
            String[] parts = each.split(":");
            int version = Integer.parseInt(parts[1]);
            refers.add(new SchemaReference(parts[2], parts[0], version));
            resolved.put(parts[2], client.getByVersion(parts[0], version, false).getSchema());
        }
        return new AvroSchema(schema, refers, resolved, null);
    }

    private Map<String, Object> settings(String more) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", brokers);
        settings.put("schema.registry.url", registry);
        settings.put("key.serializer", KafkaAvroSerializer.class);
        settings.put("value.serializer", KafkaAvroSerializer.class);
        settings.put("key.deserializer", KafkaAvroDeserializer.class);
        settings.put("value.deserializer", KafkaAvroDeserializer.class);
        settings.put("auto.offset.reset", "earliest");
        for (String each : more.isEmpty() ? new String[0] : more.split(",")) {
            settings.put(each.substring(0, each.indexOf('=')), each.substring(each.indexOf('=') + 1));
        }
        return settings;
    }

    /** Send a value in Avro's JSON, with the key "key". */
    private String send(String topic, String schema, String json, String more) throws Exception {
        Schema parsed = new Schema.Parser().parse(schema);
        Object value = new GenericDatumReader<>(parsed).read(null, DecoderFactory.get().jsonDecoder(parsed, json));
        try (KafkaProducer<Object, Object> producer = new KafkaProducer<>(settings(more))) {
            return "" + producer.send(new ProducerRecord<>(topic, "key", value)).get().offset();
        }
    }

    /** The first record of a topic's partition 0: its key, its value in Avro's JSON, and the value's schema. */
    private String read(String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<Object, Object> consumer = new KafkaConsumer<>(settings(""))) {
            consumer.assign(List.of(partition));
            for (ConsumerRecord<Object, Object> each : consumer.poll(Duration.ofSeconds(30))) {
                GenericContainer value = (GenericContainer) each.value();
                ByteArrayOutputStream json = new ByteArrayOutputStream();
                JsonEncoder encoder = EncoderFactory.get().jsonEncoder(value.getSchema(), json);
                new GenericDatumWriter<>(value.getSchema()).write(value, encoder);
                encoder.flush();
                return each.key() + "\t" + json + "\t" + value.getSchema();
            }
        }
        throw new IllegalStateException("no record in " + partition);
    }
}
