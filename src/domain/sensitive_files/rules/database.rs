//! Rules for databases and message brokers.

use super::{Rule, RuleKind, format, rule, setting, vendor_keyword};
use crate::sensitive_files::SecretCategory::Database;

/// Rules of this module in order of precedence.
#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    rule(RuleKind::DatabaseUrl, Database, "database URL with password", &["postgres", "postgresql", "mysql", "mysqlx", "mariadb", "mongodb", "redis", "rediss", "valkey", "amqp", "amqps", "mssql", "sqlserver", "cockroachdb", "cockroach", "clickhouse", "oracle", "db2", "cassandra", "neo4j", "bolt", "couchbase", "influxdb", "nats", "kafka", "ldap", "ldaps", "mqtt", "mqtts", "snowflake", "redshift", "vertica", "presto", "trino", "hive", "sybase", "firebird", "libsql", "tidb", "memcached", "stomp", "pulsar", "rethinkdb", "arangodb", "ravendb", "surrealdb"], &[]),
    rule(RuleKind::ConnectionString, Database, "connection string with password", &["password", "pwd", "passwd"], &[]),
    rule(RuleKind::DriverDsn, Database, "connection string with password", &["@tcp(", "jdbc:oracle:thin:"], &[]),
    setting(Database, "database password", &["identified by"], &[]),
    setting(Database, "database password", &["password"], &["database.yml", "database.yaml"]),
    setting(Database, "database password", &["db_password"], &["wp-config.php"]),
    format(Database, "PlanetScale credential", &["pscale_tkn_{free:32-64}", "pscale_pw_{free:32-64}", "pscale_oauth_{free:32-64}"]),
    format(Database, "Supabase key", &["sbp_{url:40}", "sb_secret_{url:31-48}"]),
    format(Database, "MongoDB Atlas secret", &["mdb_sa_sk_{url:40}"]),
    vendor_keyword(Database, "MongoDB Atlas key", &["atlas", "mongodb", "mongo"], &["{uuid}"]),
    format(Database, "Astra DB token", &["AstraCS:{alnum:20-32}:{hex:64}", "AstraCS:{alnum:20-200}"]),
    format(Database, "ClickHouse Cloud key", &["4b1d{alnum:38}"]),
    format(Database, "CockroachDB Cloud key", &["CCDB1_{alnum:22}_{alnum:40}"]),
    format(Database, "Elastic Cloud key", &["essu_{tail:60-200}"]),
    format(Database, "Aiven token", &["AVNS_{url:15-30}"]),
    format(Database, "Turso or libSQL token", &["turso_{url:40-80}"]),
    vendor_keyword(Database, "Elasticsearch key", &["elastic", "elasticsearch", "kibana", "opensearch"], &[]),
    vendor_keyword(Database, "InfluxDB token", &["influx", "influxdb"], &["{url:86}==", "{b64:86}==", "{url:88}"]),
    vendor_keyword(Database, "Snowflake credential", &["snowflake"], &[]),
    vendor_keyword(Database, "Aiven token", &["aiven"], &["{b64:344-376}"]),
    vendor_keyword(Database, "Pinecone key", &["pinecone"], &["{uuid}"]),
    format(Database, "Pinecone key", &["pcsk_{alnum:5-6}_{alnum:60-66}"]),
    format(Database, "Xata key", &["xau_{alnum:32-48}"]),
    vendor_keyword(Database, "Upstash token", &["upstash"], &[]),
    format(Database, "Confluent Cloud secret", &["cflt{b64:60}"]),
    vendor_keyword(Database, "database service credential", &["qdrant", "weaviate", "milvus", "zilliz", "couchbase", "firebase", "fauna", "supabase", "redis", "clickhouse", "confluent", "kafka", "algolia", "meilisearch", "typesense", "looker", "metabase", "tableau", "databricks", "airbyte", "fivetran", "cosmosdb"], &[]),
    format(Database, "Fauna key", &["fnAE{url:36}", "fnAD{url:36}"]),
    format(Database, "Airtable token", &["pat{alnum:14}.{hex:64}"]),
    vendor_keyword(Database, "Airtable token", &["airtable"], &["key{alnum:14}", "{alnum:17}"]),
];
