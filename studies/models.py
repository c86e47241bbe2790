"""The tables. ``docs/files.md`` explains every column; times are ISO 8601 texts in UTC."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

study = Table(
    "autoamp_study",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("script_path", Text, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("script", Text, nullable=False),
    Column("options", Text, nullable=False),
    Column("space", Text),
    Column("recommendation", Text),
    Column("state", Text, nullable=False),
    Column("autoamp_version", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
)

trial = Table(
    "autoamp_trial",
    metadata,
    Column("id", Integer, primary_key=True),
    Column(
        "study_id", Integer, ForeignKey("autoamp_study.id", ondelete="CASCADE"), nullable=False
    ),
    Column("number", Integer, nullable=False),
    Column("phase", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("setting", Text, nullable=False),
    Column("batch_size", Integer),
    Column("amp_level", Text),
    Column("dtype", Text),
    Column("numerics", Text, nullable=False),
    Column("outcome", Text),
    Column("reason", Text),
    Column("throughput_samples_per_s", Float(53)),
    Column("memory_allocated_peak_bytes", BigInteger),
    Column("memory_reserved_peak_bytes", BigInteger),
    Column("skipped_steps", Integer),
    Column("final_loss_scale", Float(53)),
    Column("time_label", Text),
    Column("memory_label", Text),
    Column("numerics_label", Text),
    Column("wall_s", Float(53)),
    Column("measurement", Text),
    Column("started_at", Text, nullable=False),
    Column("finished_at", Text),
    UniqueConstraint("study_id", "number", name="autoamp_trial_number"),
)

lease = Table(
    "autoamp_lease",
    metadata,
    Column(
        "study_id",
        Integer,
        ForeignKey("autoamp_study.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("token", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("host_id", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("process_started", Text, nullable=False),
    Column("acquired_at", Text, nullable=False),
    Column("heartbeat_at_s", Float(53), nullable=False),
    Column("beats", Integer, nullable=False),
)
