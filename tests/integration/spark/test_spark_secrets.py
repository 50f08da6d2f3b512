"""A planted password is in nothing that Spark shows or stores: plans, the UI, its REST API, event logs, checkpoints.

The driver writes with each of the sink's doors, with success and with a rejected password. Spark logs at level DEBUG.
"""

from __future__ import annotations

from pathlib import Path

from support.spark_driver import drive
from support.spark_session import needs_spark

from headrace.broker import EmbeddedCluster

pytestmark = needs_spark

SECRET = "pl4nted-s3cret"
PROGRAM = f"""
    from urllib.request import urlopen

    SECRET = {SECRET!r}
    (folder / "events").mkdir()
    spark = start("local[2]", {{
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{{folder}}/events",
        "spark.eventLog.compress": "false",
        # what Spark masks by itself is not masked here
        "spark.redaction.regex": "never-a-key",
        "spark.sql.redaction.options.regex": "never-a-key",
    }})
    spark.sparkContext.setLogLevel("DEBUG")
    register(spark)
    rows = spark.range(0, 20, numPartitions=2).selectExpr("cast(id AS string) AS value")
    texts = {{}}

    def stream(name, options):
        source = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        query = source.selectExpr("cast(value AS string) AS value").writeStream.format("headrace").options(
            **options, topic="t", checkpointLocation=str(folder / f"checkpoint-{{name}}")
        ).start()
        # "once" ends before the source has rows
        while query.isActive and not any(each.numInputRows for each in query.recentProgress):
            time.sleep(0.1)
        texts[f"progress-{{name}}"] = str(query.recentProgress) + query._jsq.explainInternal(True)
        query.stop()
        if query.exception() is not None:
            raise query.exception()

    def save(name, options):
        rows.write.format("headrace").options(**options, topic="t").mode("append").save()

    def write(name, options):
        report = KafkaSink(options, topic="t").write(rows)
        texts[f"report-{{name}}"] = repr(report)

    def for_each(name, options):
        rows.foreachPartition(KafkaSink(options, topic="t"))

    def write_batch(name, options):
        KafkaSink(options, topic="t").write_batch(rows, 0)

    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="%s";'
    refused = 0
    for keys in ("password", "jaas"):
        config = json.loads(servers)
        password = config.pop("sasl.password")
        assert password == SECRET
        for text in (password, password + "-wrong"):
            given = {{**config, "max.block.ms": "5000"}}
            if keys == "password":
                given["sasl.password"] = text
            else:
                del given["sasl.username"]
                given["sasl.jaas.config"] = jaas % text
            options = {{f"kafka.{{name}}": value for name, value in given.items()}}
            for door in (for_each, write, write_batch, save, stream):
                name = f"{{door.__name__}}-{{keys}}-{{len(text)}}"
                try:
                    door(name, options)
                except Exception as error:
                    assert text != password, error
                    refused += 1
                    texts[name] = str(error)

    ui = spark.sparkContext.uiWebUrl
    api = f"/api/v1/applications/{{spark.sparkContext.applicationId}}"
    sql = api + "/sql?details=true&planDescription=true&length=1000"

    def look(path):
        texts[path] = urlopen(ui + path).read().decode()
        return texts[path]

    executions = [each["id"] for each in json.loads(look(sql))]
    jobs = [each["jobId"] for each in json.loads(look(api + "/jobs"))]
    stages = [each["stageId"] for each in json.loads(look(api + "/stages?details=true"))]
    for path in ("", "/environment", "/allexecutors", "/storage/rdd"):
        look(api + path)
    for path in ("jobs", "stages", "storage", "environment", "executors", "SQL", "StreamingQuery"):
        look(f"/{{path}}/")
    for number in executions:
        look(f"/SQL/execution/?id={{number}}")
    for number in jobs:
        look(f"/jobs/job/?id={{number}}")
    for number in stages:
        look(f"/stages/stage/?id={{number}}&attempt=0")
    for frame in (rows, spark.createDataFrame([("v",)], ["value"])):
        texts[f"plan-{{len(texts)}}"] = str(frame._jdf.queryExecution())
    tell(
        leaks=[name for name, text in texts.items() if SECRET in text],
        refused=refused,
        executions=len(executions),
        named=sum("headrace" in text for text in texts.values()),
    )
    spark.stop()
"""


def test_spark_shows_no_secret(tmp_path: Path) -> None:
    with EmbeddedCluster(security="SASL_SSL", users={"alice": SECRET}) as cluster:
        config = {name: str(value) for name, value in cluster.client_config().items()}
        told = drive(PROGRAM, config, "t", tmp_path)
        assert len(cluster.records("t", 0)) >= 8 * 20
    assert told["leaks"] == []
    assert told["refused"] == 10
    assert told["executions"] >= 10
    # the pages show the writes, so that a secret would be on them
    assert told["named"] >= 10
    events = [path for path in (tmp_path / "events").rglob("*") if path.is_file()]
    assert any(b"SparkListenerSQLExecutionStart" in path.read_bytes() for path in events)
    stored = [*events, *(path for path in tmp_path.glob("checkpoint-*/**/*") if path.is_file())]
    assert len(stored) > len(events)
    assert [path for path in (*stored, tmp_path / "driver.log") if SECRET.encode() in path.read_bytes()] == []
