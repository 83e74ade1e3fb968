-- library: the functions, by the names under which they are called. %PREFIX% becomes the library's own name.

local function writer(name, act, flags)
  redis.register_function({
    function_name = '%PREFIX%_' .. name,
    callback = function(keys, args)
      return Turn.once(keys, args, act)
    end,
    flags = flags,
  })
end

local function reader(name, callback)
  redis.register_function({function_name = '%PREFIX%_' .. name, callback = callback, flags = {'no-writes'}})
end

local RELIEF = {'allow-oom'} -- what frees memory, or keeps a lease, goes on when there is none left

writer('commit', Commit.commit)
writer('relief', Commit.commit, RELIEF)
writer('claim', Claims.claim)
writer('renew', Claims.renew, RELIEF)
writer('retire', Claims.retire, RELIEF)
writer('survey', Claims.survey, RELIEF)
writer('blob_begin', Blobs.begin)
writer('blob_name', Blobs.name)
writer('blob_undo', Blobs.undo, RELIEF)
writer('sweep', Upkeep.sweep, RELIEF)
writer('reshape', Upkeep.reshape)
writer('reindex', Upkeep.reindex)
writer('reshaped', Upkeep.reshaped, RELIEF)
writer('told', Registry.told, RELIEF)
writer('hello', Registry.hello, RELIEF)
writer('goodbye', Registry.goodbye, RELIEF)
writer('pick', Registry.pick, RELIEF)
writer('bury', Registry.bury, RELIEF)
writer('expired', Registry.expired, RELIEF)
writer('declare', Registry.declare)
writer('found', Registry.found)

reader('records', Reads.records)
reader('scan', Reads.scan)
reader('length', Reads.length)
reader('counter', Reads.counter)
reader('log', Logs.read)
reader('work', Reads.work)
reader('list_work', Reads.list_work)
