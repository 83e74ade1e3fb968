-- library: registers the functions under their names. %PREFIX% is replaced by the library's name.

local function writer(name, act, flags, heeds)
  redis.register_function({
    function_name = '%PREFIX%_' .. name,
    callback = function(keys, args)
      return Turn.once(keys, args, act, heeds)
    end,
    flags = flags,
  })
end

local function reader(name, callback)
  redis.register_function({function_name = '%PREFIX%_' .. name, callback = callback, flags = {'no-writes'}})
end

-- For functions that are safe to repeat: their replies are not stored.
local function repeatable(name, callback)
  redis.register_function({function_name = '%PREFIX%_' .. name, callback = callback, flags = {'allow-oom'}})
end

local HEEDS = true -- the store's mark is checked
local RELIEF = {'allow-oom'} -- works without free memory: it frees memory or renews a lease

writer('commit', Commit.commit, {}, HEEDS)
writer('relief', Commit.commit, RELIEF, HEEDS)
writer('claim', Claims.claim, {}, HEEDS)
writer('renew', Claims.renew, RELIEF)
writer('retire', Claims.retire, RELIEF)
writer('survey', Claims.survey, RELIEF)
writer('blob_begin', Blobs.begin, {}, HEEDS)
writer('blob_name', Blobs.name, {}, HEEDS)
writer('blob_undo', Blobs.undo, RELIEF)
writer('sweep', Upkeep.sweep, RELIEF, HEEDS)
writer('reshape', Upkeep.reshape)
writer('reindex', Upkeep.reindex)
writer('reshaped', Upkeep.reshaped, RELIEF)
writer('announce', Registry.announce, RELIEF)
writer('hello', Registry.hello, RELIEF)
writer('goodbye', Registry.goodbye, RELIEF)
writer('pick', Registry.pick, RELIEF, HEEDS)
writer('bury', Registry.bury, RELIEF, HEEDS)
writer('expired', Registry.expired, RELIEF)
writer('declare', Registry.declare)
writer('found', Registry.found)
writer('relist', Logs.relist)

writer('load_record', Load.records)
writer('load_stream', Load.streams)
writer('load_entry', Load.entries)
writer('load_work', Load.work)
writer('load_blob', Load.blobs)
writer('load_chunk', Load.chunks)
writer('load_holding', Load.holdings)
writer('load_partition', Load.partitions)

repeatable('mark', Marks.mark)
repeatable('release', Marks.release)
repeatable('raise_fence', Marks.raise_fence)

reader('records', Reads.records)
reader('scan', Reads.scan)
reader('length', Reads.length)
reader('counter', Reads.counter)
reader('log', Logs.read)
reader('heads', Reads.heads)
reader('work', Reads.work)
reader('list_work', Reads.list_work)
reader('work_counts', Reads.work_counts)
reader('export_record', Export.records)
reader('export_stream', Export.streams)
reader('export_entry', Export.entries)
reader('export_work', Export.work)
reader('export_blob', Export.blobs)
reader('export_chunk', Export.chunks)
