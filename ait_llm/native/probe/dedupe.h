// Finds tensors whose bytes are already on disk.
#ifndef AIT_PROBE_DEDUPE_H
#define AIT_PROBE_DEDUPE_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

namespace ait {

// 128 bits over a stream of bytes; independent of how the stream is cut. Not cryptographic: a hit
// is always confirmed by comparing the bytes.
class ContentHash {
public:
    struct Value {
        uint64_t high = 0;
        uint64_t low = 0;
        bool operator==(const Value &other) const
        {
            return high == other.high && low == other.low;
        }
    };
    void Add(const void *data, size_t size);
    Value Finish();

private:
    void Block(const uint8_t *data);

    static constexpr size_t BLOCK = 32;
    uint64_t lanes_[4] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9,
                          0x27d4eb2f165667c5};
    uint8_t rest_[BLOCK] = {};
    size_t held_ = 0;
    uint64_t total_ = 0;
};

struct StoredTensor {
    std::string path;   // relative to the root of the capture
    std::string header; // of the file that holds the data
    uint64_t size = 0;  // of the data behind the header
};

// A description that names another file as the holder of its bytes.
struct TensorAlias {
    std::string path;
    std::string header; // the header it would have with the data behind it
    uint64_t targetOffset = 0;
    uint64_t size = 0;
};

// Remembers the newest tensors, in bounded memory.
class DedupeIndex {
public:
    const StoredTensor *Find(const ContentHash::Value &hash, uint64_t size) const;
    void Remember(const ContentHash::Value &hash, StoredTensor tensor);
    // The file at `path` is about to change.
    void Forget(const std::string &path);

    bool MayAlias() const { return targetOf_.size() < MAX_TENSORS; }
    void AddAlias(const std::string &target, TensorAlias alias);
    std::vector<TensorAlias> TakeAliases(const std::string &target);
    void RemoveAlias(const std::string &alias);

private:
    static constexpr size_t MAX_TENSORS = 65536;
    struct Hasher {
        size_t operator()(const ContentHash::Value &value) const
        {
            return static_cast<size_t>(value.low);
        }
    };
    std::unordered_map<ContentHash::Value, StoredTensor, Hasher> tensors_;
    std::unordered_map<std::string, ContentHash::Value> byPath_;
    std::deque<ContentHash::Value> order_;
    std::unordered_map<std::string, std::vector<TensorAlias>> aliases_; // by target
    std::unordered_map<std::string, std::string> targetOf_;
};

// True where the file holds exactly these bytes from `offset` on.
bool FileEquals(int fd, uint64_t offset, const void *data, size_t size);
bool FilesEqual(int a, uint64_t offsetA, int b, uint64_t offsetB, uint64_t size);

// How `to` is reached from the directory of `from`: "../after/x.bin". Both relative to one root.
std::string RelativePath(const std::string &from, const std::string &to);

} // namespace ait

#endif
