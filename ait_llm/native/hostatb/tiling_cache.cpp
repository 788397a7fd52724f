#include "tiling_cache.h"

#include <map>
#include <mutex>
#include <utility>

namespace hostatb {
namespace {

struct Cache {
    std::mutex mutex;
    std::map<std::pair<std::string, size_t>, std::string> keys;
};

Cache &GlobalCache()
{
    static Cache *cache = new Cache; // threads may still set up operations at exit
    return *cache;
}

} // namespace

std::string TilingKey(const Runner &runner, const Kernel &kernel)
{
    std::string key = kernel.name + "\n" + kernel.mkiParam + "\n" +
                      runner.operation->leaf->paramJson.value_or("");
    for (const std::vector<uint32_t> *tensors : {&kernel.in, &kernel.out}) {
        for (const uint32_t tensor : *tensors) {
            key += "\n" + DescText(runner.TensorDesc(tensor));
        }
        key += "\n";
    }
    return key;
}

bool IsTilingCached(const std::string &type, size_t kernel, const std::string &key)
{
    Cache &cache = GlobalCache();
    const std::lock_guard<std::mutex> lock(cache.mutex);
    const auto found = cache.keys.find({type, kernel});
    return found != cache.keys.end() && found->second == key;
}

void StoreTiling(const std::string &type, size_t kernel, const std::string &key)
{
    Cache &cache = GlobalCache();
    const std::lock_guard<std::mutex> lock(cache.mutex);
    cache.keys[{type, kernel}] = key;
}

} // namespace hostatb
