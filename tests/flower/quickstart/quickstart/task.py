"""quickstart: a Flower / PyTorch app."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Model (simple MLP with a BatchNorm)."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.bn1 = nn.BatchNorm1d(16)
        self.fc2 = nn.Linear(16, 3)

    def forward(self, x):
        return self.fc2(F.relu(self.bn1(self.fc1(x))))


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """Load partition data: points around three centers, the same for everybody."""
    generator = torch.Generator().manual_seed(0)
    centers = 3 * torch.randn(3, 8, generator=generator)
    labels = torch.randint(3, (600,), generator=generator)
    points = centers[labels] + torch.randn(600, 8, generator=generator)
    rows = torch.arange(partition_id, 600, num_partitions)
    train, test = rows[: len(rows) * 4 // 5], rows[len(rows) * 4 // 5 :]
    trainloader = DataLoader(
        TensorDataset(points[train], labels[train]), batch_size=batch_size, shuffle=True
    )
    testloader = DataLoader(TensorDataset(points[test], labels[test]), batch_size=batch_size)
    return trainloader, testloader


def train(net, trainloader, steps, lr, device):
    """Train the model on the training set."""
    net.to(device)
    criterion = torch.nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss, done = 0.0, 0
    while done < steps:  # was: for _ in range(epochs)
        for points, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(points.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            done += 1
            if done == steps:
                break
    return running_loss / steps


def test(net, testloader, device):
    """Validate the model on the test set."""
    net.to(device)
    net.eval()
    criterion = torch.nn.CrossEntropyLoss()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for points, labels in testloader:
            outputs = net(points.to(device))
            labels = labels.to(device)
            loss += criterion(outputs, labels).item()
            correct += (torch.max(outputs.data, 1)[1] == labels).sum().item()
    accuracy = correct / len(testloader.dataset)
    loss = loss / len(testloader)
    return loss, accuracy
