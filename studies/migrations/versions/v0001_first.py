"""The first schema: studies, trials, leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "autoamp_study",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("script_path", sa.Text, nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("machine", sa.Text, nullable=False),
        sa.Column("script", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("space", sa.Text),
        sa.Column("recommendation", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("autoamp_version", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Text, nullable=False),
    )
    op.create_table(
        "autoamp_trial",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "study_id",
            sa.Integer,
            sa.ForeignKey("autoamp_study.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("setting", sa.Text, nullable=False),
        sa.Column("batch_size", sa.Integer),
        sa.Column("amp_level", sa.Text),
        sa.Column("dtype", sa.Text),
        sa.Column("numerics", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("throughput_samples_per_s", sa.Float(53)),
        sa.Column("memory_allocated_peak_bytes", sa.BigInteger),
        sa.Column("memory_reserved_peak_bytes", sa.BigInteger),
        sa.Column("skipped_steps", sa.Integer),
        sa.Column("final_loss_scale", sa.Float(53)),
        sa.Column("time_label", sa.Text),
        sa.Column("memory_label", sa.Text),
        sa.Column("numerics_label", sa.Text),
        sa.Column("wall_s", sa.Float(53)),
        sa.Column("measurement", sa.Text),
        sa.Column("started_at", sa.Text, nullable=False),
        sa.Column("finished_at", sa.Text),
        sa.UniqueConstraint("study_id", "number", name="autoamp_trial_number"),
    )
    op.create_table(
        "autoamp_lease",
        sa.Column(
            "study_id",
            sa.Integer,
            sa.ForeignKey("autoamp_study.id", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("host_id", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("process_started", sa.Text, nullable=False),
        sa.Column("acquired_at", sa.Text, nullable=False),
        sa.Column("heartbeat_at_s", sa.Float(53), nullable=False),
        sa.Column("beats", sa.Integer, nullable=False),
    )
