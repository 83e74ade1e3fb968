-- The partitions of a lane take turns: the index has them in order, and the items of each in theirs.

DROP INDEX work_ready;
CREATE INDEX work_ready ON work (queue, lane, partition, priority DESC, ready_at) WHERE state = 'ready';
