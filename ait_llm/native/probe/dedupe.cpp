#include "dedupe.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "host_path.h"
#include "matcher.h"

namespace ait {
namespace {

uint64_t Load(const uint8_t *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof(value));
    return value;
}

// Both halves of the 128-bit product, folded.
uint64_t Mix(uint64_t a, uint64_t b)
{
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

bool ReadFully(int fd, void *buffer, size_t size, uint64_t offset)
{
    auto *out = static_cast<char *>(buffer);
    while (size > 0) {
        const ssize_t got = pread(fd, out, size, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        out += got;
        offset += static_cast<uint64_t>(got);
        size -= static_cast<size_t>(got);
    }
    return true;
}

constexpr size_t COMPARE_BLOCK = 262144;

} // namespace

void ContentHash::Block(const uint8_t *data)
{
    // Odd constants per lane, so that equal words in different lanes differ.
    static constexpr uint64_t KEYS[4] = {0xa0761d6478bd642f, 0xe7037ed1a0b428db,
                                         0x8ebc6af09c88c6e3, 0x589965cc75374cc3};
    for (size_t i = 0; i < 4; ++i) {
        lanes_[i] = Mix(lanes_[i] ^ KEYS[i], Load(data + 8 * i) ^ 0x1d8e4e27c47d124f) +
                    (lanes_[i] << 23 | lanes_[i] >> 41) + Load(data + 8 * i);
    }
}

void ContentHash::Add(const void *data, size_t size)
{
    const auto *bytes = static_cast<const uint8_t *>(data);
    total_ += size;
    if (held_ > 0) {
        const size_t take = std::min(BLOCK - held_, size);
        memcpy(rest_ + held_, bytes, take);
        held_ += take;
        bytes += take;
        size -= take;
        if (held_ < BLOCK) {
            return;
        }
        Block(rest_);
        held_ = 0;
    }
    for (; size >= BLOCK; bytes += BLOCK, size -= BLOCK) {
        Block(bytes);
    }
    memcpy(rest_, bytes, size);
    held_ = size;
}

ContentHash::Value ContentHash::Finish()
{
    memset(rest_ + held_, 0, BLOCK - held_);
    Block(rest_);
    Value value;
    value.high = Mix(lanes_[0] ^ total_, lanes_[1] ^ 0x9e3779b97f4a7c15) ^
                 Mix(lanes_[2], lanes_[3] ^ 0xc2b2ae3d27d4eb4f);
    value.low = Mix(lanes_[0] ^ 0x165667b19e3779f9, lanes_[2] ^ total_) ^
                Mix(lanes_[1] ^ 0x27d4eb2f165667c5, lanes_[3]);
    return value;
}

const StoredTensor *DedupeIndex::Find(const ContentHash::Value &hash, uint64_t size) const
{
    const auto found = tensors_.find(hash);
    return found == tensors_.end() || found->second.size != size ? nullptr : &found->second;
}

void DedupeIndex::Remember(const ContentHash::Value &hash, StoredTensor tensor)
{
    Forget(tensor.path);
    byPath_[tensor.path] = hash;
    const auto existing = tensors_.find(hash);
    if (existing != tensors_.end()) {
        byPath_.erase(existing->second.path);
        byPath_[tensor.path] = hash;
        existing->second = std::move(tensor);
        return;
    }
    tensors_.emplace(hash, std::move(tensor));
    order_.push_back(hash);
    if (order_.size() > MAX_TENSORS) {
        const auto oldest = tensors_.find(order_.front());
        if (oldest != tensors_.end()) {
            byPath_.erase(oldest->second.path);
            tensors_.erase(oldest);
        }
        order_.pop_front();
    }
}

void DedupeIndex::Forget(const std::string &path)
{
    const auto found = byPath_.find(path);
    if (found != byPath_.end()) {
        tensors_.erase(found->second);
        byPath_.erase(found);
    }
}

void DedupeIndex::AddAlias(const std::string &target, TensorAlias alias)
{
    targetOf_[alias.path] = target;
    aliases_[target].push_back(std::move(alias));
}

std::vector<TensorAlias> DedupeIndex::TakeAliases(const std::string &target)
{
    std::vector<TensorAlias> aliases;
    const auto found = aliases_.find(target);
    if (found != aliases_.end()) {
        aliases = std::move(found->second);
        aliases_.erase(found);
        for (const TensorAlias &alias : aliases) {
            targetOf_.erase(alias.path);
        }
    }
    return aliases;
}

void DedupeIndex::RemoveAlias(const std::string &alias)
{
    const auto found = targetOf_.find(alias);
    if (found == targetOf_.end()) {
        return;
    }
    std::vector<TensorAlias> &list = aliases_[found->second];
    const auto isAlias = [&](const TensorAlias &entry) { return entry.path == alias; };
    list.erase(std::remove_if(list.begin(), list.end(), isAlias), list.end());
    targetOf_.erase(found);
}

bool FileEquals(int fd, uint64_t offset, const void *data, size_t size)
{
    const auto *bytes = static_cast<const char *>(data);
    std::vector<char> buffer(std::min(size, COMPARE_BLOCK));
    for (size_t done = 0; done < size;) {
        const size_t n = std::min(size - done, buffer.size());
        if (!ReadFully(fd, buffer.data(), n, offset + done) ||
            memcmp(buffer.data(), bytes + done, n) != 0) {
            return false;
        }
        done += n;
    }
    return true;
}

bool FilesEqual(int a, uint64_t offsetA, int b, uint64_t offsetB, uint64_t size)
{
    std::vector<char> buffer(COMPARE_BLOCK);
    for (uint64_t done = 0; done < size;) {
        const auto n = static_cast<size_t>(std::min<uint64_t>(size - done, buffer.size()));
        if (!ReadFully(a, buffer.data(), n, offsetA + done) ||
            !FileEquals(b, offsetB + done, buffer.data(), n)) {
            return false;
        }
        done += n;
    }
    return true;
}

std::string RelativePath(const std::string &from, const std::string &to)
{
    const std::vector<std::string> start = Split(DirectoryOf(from), '/');
    const std::vector<std::string> end = Split(DirectoryOf(to), '/');
    size_t common = 0;
    while (common < start.size() && common < end.size() && start[common] == end[common]) {
        ++common;
    }
    std::string path;
    for (size_t i = common; i < start.size(); ++i) {
        path += "../";
    }
    for (size_t i = common; i < end.size(); ++i) {
        path += end[i] + "/";
    }
    return path + FileOf(to);
}

} // namespace ait
